import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from tensus_tn.data import catalogue, load, load_diffmg, load_gtn, load_herec, load_npz
from tensus_tn.data.herec import _sorted_ratings
from tensus_tn.data.recommendation import split_pairs
from tests.data.originals import (
    FEATURES,
    NODE_TYPE,
    PA,
    PC,
    matrix,
    write_diffmg,
    write_gtn,
    write_herec,
)

DATA = Path(os.environ.get("TENSUS_DATA", "data"))


def real(file):
    if not (DATA / file).exists():
        pytest.skip(f"{file} is not in {DATA}: set TENSUS_DATA")
    return DATA / file


def pairs_of(data, name):
    """Edges as rows (receiving, sending)."""
    return data.relations[name].edges.flip(0).T.tolist()


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
    assert (data.target.source, data.target.target) == ("type0", "type1")
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
    write_pickle(folder / "adjs_offset.pkl", {"simdd": matrix(PA)})
    with pytest.raises(ValueError, match="adjs_offset"):
        load(folder)


def ratings(num_users=12, num_items=10, num=60):
    random = np.random.RandomState(0)
    cells = random.permutation(num_users * num_items)[:num]
    table = np.stack([cells // num_items + 1, cells % num_items + 1, random.randint(1, 6, num)], 1)
    repeated = table[:3] + np.array([0, 0, 1])  # the first line of a pair counts
    return np.concatenate([table, repeated])


def test_herec_files(tmp_path):
    table = ratings()
    data = load(write_herec(tmp_path / "mine", table), ratings="user_item", seeds=(3, 4))
    users, items = (int(n) for n in table[:, :2].max(axis=0))
    assert data.node_counts == {"user": users, "item": items, "brand": 1}
    assert list(data.relations) == [
        "user_user", "user_item", "user_item reversed", "item_brand", "item_brand reversed",
    ]  # fmt: skip
    assert sorted(pairs_of(data, "user_user")) == [[0, 1], [0, 2], [1, 0], [2, 0]]
    assert data.symmetric == {"user_user"}
    shift = np.array([1, 1 - users])
    liked = {tuple(row[:2]) for row in table[:60].tolist() if row[2] > 3}
    low = {tuple(row[:2]) for row in table[:60].tolist() if row[2] <= 3}
    positive = [
        tuple(p) for s in data.target.positive.values() for p in (s.numpy() + shift).tolist()
    ]
    negative = [
        tuple(p) for s in data.target.negative.values() for p in (s.numpy() + shift).tolist()
    ]
    edges = {tuple(p) for p in (np.array(pairs_of(data, "user_item")) + shift).tolist()}
    assert edges | set(positive) == liked  # half of them are edges, and those are not asked for
    assert not edges & set(positive)
    assert abs(len(edges) - len(positive)) <= 1
    assert set(negative) <= low
    assert len(set(negative)) == len(negative) == len(positive)


def test_positive_pairs_are_drawn_in_the_steps_of_the_protocol():
    pairs = np.stack([np.arange(40), np.arange(40) % 7], 1).astype(np.int64)
    liked = np.arange(40) % 3 > 0
    result = split_pairs(pairs, liked, (5, 6))
    random, order = np.random.RandomState(5), np.flatnonzero(liked)
    random.shuffle(order)
    assert len(order) == 26
    hidden = order[13:]
    random.shuffle(hidden)
    assert result.kept.tolist() == pairs[order[:13]].tolist()
    for part, ids in zip(("train", "val", "test"), np.split(hidden, [7, 10]), strict=True):
        assert result.positive[part].tolist() == pairs[ids].tolist()


def test_ratings_are_in_the_order_of_the_file_or_of_their_ids():
    table = np.array([[2, 1, 5], [1, 3, 4], [1, 2, 3], [1, 3, 1]])
    pairs, rating = _sorted_ratings(table, by_id=False)
    assert (pairs.tolist(), rating.tolist()) == ([[1, 0], [0, 2], [0, 1]], [5, 4, 3])
    pairs, rating = _sorted_ratings(table, by_id=True)
    assert (pairs.tolist(), rating.tolist()) == ([[0, 1], [0, 2], [1, 0]], [3, 4, 5])


def test_negative_pairs_are_filled_up_with_unrated_ones():
    pairs = np.stack([np.repeat(np.arange(6), 2), np.arange(12) % 6], 1).astype(np.int64)
    liked = np.arange(12) > 0
    result = split_pairs(pairs, liked, (0, 0))
    negative = np.concatenate(list(result.negative.values())).tolist()
    assert len(negative) == 5
    assert len({tuple(p) for p in negative}) == 5
    rated = pairs.tolist()
    assert sum(p in rated for p in negative) == 1
    assert rated[0] in negative
    full = np.stack([np.repeat(np.arange(4), 4), np.tile(np.arange(4), 4)], 1).astype(np.int64)
    with pytest.raises(ValueError, match="only 0 pairs"):
        split_pairs(full, np.ones(16, dtype=bool), (0, 0))


def test_bad_herec_files_are_refused(tmp_path):
    folder = write_herec(tmp_path, ratings())
    with pytest.raises(ValueError, match="ratings must be one of"):
        load_herec(folder)
    (folder / "item_brand.dat").write_text("0\t1\n")
    with pytest.raises(ValueError, match="count from 1"):
        load_herec(folder, ratings="user_item")
    (folder / "item_brand.dat").write_text("a\tb\n")
    with pytest.raises(ValueError, match="expected lines of numbers"):
        load_herec(folder, ratings="user_item")
    (folder / "item_brand.dat").write_text("1\n")
    with pytest.raises(ValueError, match="two ids"):
        load_herec(folder, ratings="user_item")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1.5\t1", r"item_brand\.dat: ids: expected whole numbers .* got 1\.5"),
        ("1\tnan", "ids: expected whole numbers .* got nan"),
        ("inf\t1", "ids: expected whole numbers .* got inf"),
        ("9999999999\t1", "at most 2147483647, got 9999999999"),
    ],
)
def test_ids_that_number_no_node_are_refused(tmp_path, line, message):
    folder = write_herec(tmp_path, ratings())
    (folder / "item_brand.dat").write_text(f"1\t1\n{line}\n")
    with pytest.raises(ValueError, match=message):
        load_herec(folder, ratings="user_item")


def test_ratings_may_have_fractions(tmp_path):
    folder, table = write_herec(tmp_path, ratings()), ratings()
    whole = load_herec(folder, ratings="user_item")
    halves = table + np.array([0, 0, -0.5])  # 3.5 is positive, as 4 was
    np.savetxt(folder / "user_item.dat", halves, fmt="%g", delimiter="\t")
    half = load_herec(folder, ratings="user_item")
    for split, pairs in whole.target.positive.items():
        assert (pairs == half.target.positive[split]).all()
        assert (whole.target.negative[split] == half.target.negative[split]).all()
    halves[0, 2] = np.nan
    np.savetxt(folder / "user_item.dat", halves, fmt="%g", delimiter="\t")
    with pytest.raises(ValueError, match="NaN among its ratings"):
        load_herec(folder, ratings="user_item")


def gtn_arrays():
    arrays = {
        "node_type_names": np.array(["author", "paper", "conference"]),
        "node_type": NODE_TYPE.astype(np.int8),
        "type_offsets": np.array([0, 3, 7, 8]),
        "diffmg_node_type": np.array([0, 0, 0, 0, 1, 1, 1, 2]),
        "relation_names": np.array(["PA", "PC"]),
        "labels": np.array([1, 0, 1, -1, -1, -1, -1, -1]),
        "num_classes": np.array(2),
        "feat_data": FEATURES.flatten(),
        "feat_indices": np.tile([0, 1], 8),
        "feat_indptr": np.arange(0, 17, 2),
        "feat_shape": np.array([8, 2]),
    }
    for name, pairs in (("PA", PA), ("PC", PC)):
        arrays[f"rel_{name}_src"], arrays[f"rel_{name}_dst"] = pairs.T
    for k, split in enumerate(("train", "val", "test")):
        arrays[f"{split}_idx"] = np.array([k])
    return arrays


def test_npz_of_node_classification(tmp_path):
    np.savez(tmp_path / "my_graph.npz", **gtn_arrays())
    data = load(tmp_path / "my_graph.npz")
    assert data.name == "graph"
    assert data.node_counts == {"author": 3, "paper": 4, "conference": 1}
    assert data.metadata == {"PA": ("author", "paper"), "PC": ("conference", "paper")}
    assert pairs_of(data, "PA") == PA.tolist()
    assert torch.cat(list(data.features.values())).tolist() == FEATURES.tolist()
    assert data.target.kind == "author"
    wrong = load_npz(tmp_path / "my_graph.npz", node_types="diffmg")
    assert wrong.node_counts == {"author": 4, "paper": 3, "conference": 1}
    assert (data.mistyped, wrong.mistyped) == (False, True)


def test_a_relation_of_an_npz_must_keep_to_its_types(tmp_path):
    arrays = gtn_arrays()
    arrays["rel_PA_dst"] = arrays["rel_PA_dst"] + [0, 0, 0, 0, 5]  # a conference among the authors
    np.savez(tmp_path / "file.npz", **arrays)
    with pytest.raises(ValueError, match="'PA': sending nodes: expected ids of 'author'"):
        load(tmp_path / "file.npz")


@pytest.mark.parametrize("damage", [None, b"PK\x03\x04 nothing", b"", b"text", b"\x93NUMPY"])
def test_damaged_npz_are_refused(tmp_path, damage):
    path = tmp_path / "file.npz"
    arrays = gtn_arrays()
    del arrays["num_classes"]
    np.savez(path, **arrays)
    if damage is not None:
        path.write_bytes(damage)
    with pytest.raises(ValueError, match=r"file\.npz is not a data set"):
        load(path)


def test_ids_of_npz_are_whole_numbers(tmp_path):
    path, arrays = tmp_path / "file.npz", gtn_arrays()
    for key in ("rel_PA_src", "labels", "val_idx"):
        np.savez(path, **{**arrays, key: arrays[key] + 0.5})
        with pytest.raises(ValueError, match=f"{key}: expected whole numbers"):
            load(path)


def test_known_files_are_verified(tmp_path):
    path = tmp_path / "gtn_dblp.npz"
    np.savez(path, **gtn_arrays())
    with pytest.raises(ValueError, match=r"damaged or another version.*Graph_Transformer_Networks"):
        load(path)
    assert load(path, verify=False).num_nodes == 8


def test_missing_files_say_where_to_get_them_and_where_to_put_them(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSUS_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"HIN-Datasets.*TENSUS_DATA") as error:
        load("yelp")
    assert str(tmp_path / "rec_yelp.npz") in str(error.value)
    with pytest.raises(FileNotFoundError, match=r"no such\.npz; known data sets: dblp, acm"):
        load("no such.npz")
    for name in ("ACM", "Planted", "data/acm"):
        with pytest.raises(FileNotFoundError, match=rf"no {name};.*douban, planted; did you mean"):
            load(name)
    with pytest.raises(ValueError, match="holds neither"):
        load(tmp_path)


def test_the_real_files_have_the_counts_of_the_paper():
    expected = {
        "gtn_dblp.npz": (18405, 67946, {"train": 800, "val": 400, "test": 2857}),
        "gtn_acm.npz": (8994, 25922, {"train": 600, "val": 300, "test": 2125}),
        "gtn_imdb.npz": (12772, 37288, {"train": 300, "val": 300, "test": 2339}),
    }
    for file, (nodes, edges, splits) in expected.items():
        data = load(real(file))
        assert data.num_nodes == nodes
        assert sum(r.edges.shape[1] for r in data.relations.values()) == edges
        assert {s: len(n) for s, n in data.target.nodes.items()} == splits
        assert data.node_counts == catalogue.KNOWN[data.name].node_counts
        known = catalogue.KNOWN[data.name].relations
        assert data.metadata == {name: ends[::-1] for name, ends in known.items()}


def test_of_the_real_files_only_dblp_has_wrong_types_in_diffmg():
    for file in ("gtn_dblp.npz", "gtn_acm.npz", "gtn_imdb.npz"):
        data, theirs = load(real(file)), load(real(file), node_types="diffmg")
        assert not data.mistyped
        assert theirs.mistyped == (data.name == "dblp")


def test_relations_of_the_real_recommendation_data_are_in_diffmgs_order():
    data = load(real("rec_yelp.npz"))
    assert list(data.graph("none").relation_names) == [
        "UU", "UB", "BU", "UCo", "CoU", "BCa", "CaB", "BC", "CB", "identity", "zero",
    ]  # fmt: skip
    assert data.num_nodes == 31092
    assert data.symmetric == {"UU"}


def test_herec_reproduces_diffmgs_positive_pairs(tmp_path):
    """Amazon's ratings written as HERec has them give the split that DiffMG stored."""
    file = real("rec_amazon.npz")
    with np.load(file) as arrays:
        for name, first, second in (
            ("UI", "user", "item"), ("IB", "item", "brand"),
            ("IC", "item", "category"), ("IV", "item", "view"),
        ):  # fmt: skip
            third = arrays["rating_UI"] if name == "UI" else np.ones(len(arrays[f"rel_{name}_src"]))
            table = np.stack(
                [arrays[f"rel_{name}_src"] + 1, arrays[f"rel_{name}_dst"] + 1, third], 1
            )
            np.savetxt(tmp_path / f"{first}_{second}.dat", table, fmt="%d", delimiter="\t")
    stored, split = load(file), load_herec(tmp_path, name="Amazon")
    assert split.node_counts == stored.node_counts
    assert split.metadata == stored.metadata
    for name, relation in stored.relations.items():
        assert (relation.edges == split.relations[name].edges).all()
    for part, pairs in stored.target.positive.items():
        assert (pairs == split.target.positive[part]).all()
        assert split.target.negative[part].shape == pairs.shape
