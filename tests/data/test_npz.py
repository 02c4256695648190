"""Our own files, and damaged ones."""

import numpy as np
import pytest
import torch

from tensus_tn.data import load, load_npz
from tests.data.originals import (
    FEATURES,
    NODE_TYPE,
    PA,
    PC,
)
from tests.data.reading import pairs_of, real


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
