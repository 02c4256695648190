"""The folders of GTN and DiffMG, and damaged ones."""

import pickle

import numpy as np
import pytest

from tensus_tn.data import catalogue, load, load_diffmg, load_gtn
from tests.data.originals import (
    FEATURES,
    NODE_TYPE,
    PA,
    matrix,
    write_diffmg,
    write_gtn,
)
from tests.data.reading import pairs_of


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("form", ["csr", "coo"])
def test_gtn_pickles(tmp_path, form, protocol):
    data = load(write_gtn(tmp_path / "mine", form=form, protocol=protocol))
    assert data.name == "mine"
    assert data.node_counts == {"node": 8}
    assert list(data.relations) == ["R0", "R1", "R2"]
    assert sorted(pairs_of(data, "R0")) == PA.tolist()
    assert sorted(pairs_of(data, "R1")) == sorted(PA[:, ::-1].tolist())
    assert (data.features["node"].numpy() == FEATURES).all()
    assert data.target.labels.tolist() == [1, 0, 1, -1, -1, -1, -1, -1]
    assert {s: n.tolist() for s, n in data.target.nodes.items()} == {
        "train": [0],
        "val": [1],
        "test": [2],
    }


def test_diffmgs_node_types_beside_the_pickles(tmp_path):
    data = load_gtn(write_gtn(tmp_path, node_types=True), name="mine")
    assert data.node_counts == {"type0": 3, "type1": 4, "type2": 1}
    assert data.metadata["R0"] == ("type0", "type1")
    assert data.metadata["R2"] == ("type2", "type1")
    assert data.target.kind == "type0"
    np.save(tmp_path / "node_types.npy", [0, 0, 0, 0, 1, 1, 1, 2])
    with pytest.raises(ValueError, match="'R0' joins nodes of more than two types"):
        load_gtn(tmp_path)
    np.save(tmp_path / "node_types.npy", NODE_TYPE[::-1])
    with pytest.raises(ValueError, match="consecutive"):
        load_gtn(tmp_path)
    with pytest.raises(ValueError, match="node_types must be one of"):
        load_gtn(tmp_path, node_types="wrong")


def test_known_gtn_data_get_names_and_both_variants_of_types(tmp_path, monkeypatch):
    known = catalogue.Source(
        "gtn_dblp.npz", "", "", {"author": 3, "paper": 4, "conference": 1},
        {"PA": ("paper", "author"), "AP": ("author", "paper"), "PC": ("paper", "conference")},
    )  # fmt: skip
    monkeypatch.setitem(catalogue.KNOWN, "dblp", known)
    folder = write_gtn(tmp_path / "DBLP")
    np.save(folder / "node_types.npy", [0, 0, 0, 0, 1, 1, 1, 2])  # paper, author, conference
    data = load(folder)
    assert data.metadata == {
        "PA": ("author", "paper"),
        "AP": ("paper", "author"),
        "PC": ("conference", "paper"),
    }
    assert data.node_counts == known.node_counts
    wrong = load(folder, node_types="diffmg")
    assert list(wrong.node_counts.values()) == [4, 3, 1]
    assert wrong.metadata == data.metadata
    assert (data.mistyped, wrong.mistyped) == (False, True)
    assert wrong.features["author"].tolist() == FEATURES[:4].tolist()


def test_diffmg_recommendation(tmp_path):
    data = load(write_diffmg(tmp_path / "mine"))
    assert list(data.relations) == ["R0", "R1", "R1 reversed", "R2", "R2 reversed"]
    assert data.symmetric == {"R0"}
    assert sorted(pairs_of(data, "R1")) == sorted(PA[:, ::-1].tolist())
    assert sorted(pairs_of(data, "R1 reversed")) == PA.tolist()
    assert data.metadata["R1"] == ("type1", "type0")
    assert (data.target.source, data.target.destination) == ("type0", "type1")
    assert data.target.positive["val"].tolist() == [[1, 4]]
    assert data.target.negative["test"].tolist() == [[2, 5]]
    assert data.features == {}
    (tmp_path / "mine" / "neg_pairs_offset.npz").unlink()
    with pytest.raises(FileNotFoundError, match="neg_pairs_offset"):
        load_diffmg(tmp_path / "mine")


def write_pickle(path, value):
    path.write_bytes(pickle.dumps(value))


def test_bad_folders_are_refused(tmp_path):
    folder = write_gtn(tmp_path)
    labels = [[[0, 1]], [[1, 0]], [[8, 1]]]
    write_pickle(folder / "labels.pkl", labels)
    with pytest.raises(ValueError, match="test labels: node 8 is out of range"):
        load(folder)
    write_pickle(folder / "labels.pkl", [[[0.7, 1]], [[1, 0]], [[2, 1]]])
    with pytest.raises(ValueError, match=r"train labels: expected whole numbers .* got 0\.7"):
        load(folder)
    write_pickle(folder / "labels.pkl", [[["a", "b"]], [[1, 0]], [[2, 1]]])
    with pytest.raises(TypeError, match="train labels: expected whole numbers, got <U1"):
        load(folder)
    for wrong in (labels[:2], {"train": labels[0]}):
        write_pickle(folder / "labels.pkl", wrong)
        with pytest.raises(ValueError, match=r"labels\.pkl: expected a list of .*'test'"):
            load(folder)
    write_pickle(folder / "labels.pkl", [[[0, 1]], [], [[2, 1]]])
    with pytest.raises(ValueError, match="val labels"):
        load(folder)
    write_pickle(folder / "node_features.pkl", FEATURES[:5])
    with pytest.raises(ValueError, match="features of 8 nodes"):
        load(folder)
    for wrong in ([], {"a": matrix(PA)}, [np.eye(8)], [matrix(PA), matrix(PA)[:7]]):
        write_pickle(folder / "edges.pkl", wrong)
        with pytest.raises(ValueError, match=r"edges\.pkl: expected sparse matrices"):
            load(folder)
    write_pickle(folder / "edges.pkl", [matrix(PA)[:7]])
    with pytest.raises(ValueError, match="square"):
        load(folder)
    folder = write_diffmg(tmp_path / "rec")
    halves = {s: np.array([[0.5, 4]]) for s in ("train", "val", "test")}
    np.savez(folder / "neg_pairs_offset.npz", **halves)
    with pytest.raises(ValueError, match=r"neg_pairs_offset.npz: train: .* got 0\.5"):
        load(folder)
    np.savez(folder / "pos_pairs_offset.npz", train=np.array([[0, 4]]))
    with pytest.raises(ValueError, match="pos_pairs_offset"):
        load(folder)
    (folder / "pos_pairs_offset.npz").write_bytes(b"text")
    with pytest.raises(ValueError, match="not DiffMG's file of pairs: it is no zip archive"):
        load(folder)
    for damaged in (b"", b"text"):
        (folder / "node_types.npy").write_bytes(damaged)
        with pytest.raises(ValueError, match="not an array of node types"):
            load(folder)
    write_pickle(folder / "adjs_offset.pkl", {"simdd": matrix(PA)})
    with pytest.raises(ValueError, match="adjs_offset"):
        load(folder)


def test_the_limit_of_memory_can_be_set(tmp_path):
    for folder in (write_gtn(tmp_path / "a"), write_diffmg(tmp_path / "b")):
        assert load(folder, max_bytes=2**20).num_nodes == 8
        with pytest.raises(ValueError, match=r"\.pkl: its content would take .* limit of 100"):
            load(folder, max_bytes=100)
