"""Names of relations, numbers of nodes, and ids that are checked."""

import pytest
import torch

from tensus_tn.propagation.node_ids import node_counts, relation_name, require_ids, type_slices


def test_relations_have_the_names_of_pyg():
    assert relation_name("cites") == "cites"
    assert relation_name(("paper", "cites", "paper")) == "paper__cites__paper"
    for wrong in (("paper", "paper"), 3, ("paper", 1, "paper")):
        with pytest.raises(TypeError, match="a string or by three strings"):
            relation_name(wrong)


def test_types_follow_one_another():
    assert type_slices({}) == {}
    slices = type_slices({"author": 3, "paper": 0, "venue": 2})
    assert slices == {"author": slice(0, 3), "paper": slice(3, 3), "venue": slice(3, 5)}


def test_numbers_of_nodes_are_counts():
    assert node_counts(4) == {"node": 4}
    assert node_counts({"a": torch.tensor(2)}) == {"a": 2}
    with pytest.raises(TypeError, match=r"'a' nodes must be an int, got 2\.0"):
        node_counts({"a": 2.0})
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        node_counts(-1)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_ids_become_int64(dtype):
    ids = torch.tensor([2, 0, 1], dtype=dtype)
    assert require_ids("node", ids, 3).dtype == torch.int64
    with pytest.raises(ValueError, match="node 2 is out of range, there are 2"):
        require_ids("node", ids, 2)
    assert require_ids("node", ids[:0], 0).shape == (0,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.complex64])
def test_only_integers_are_ids(dtype):
    with pytest.raises(TypeError, match="node: expected integers, got"):
        require_ids("node", torch.ones(2, dtype=dtype), 3)
