"""Arrays from files: whole numbers, blocks of nodes, features by type."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from tensus_tn.data.arrays import (
    LARGEST_ID,
    block_counts,
    check_variant,
    one_hot,
    split_features,
    whole_numbers,
)


def test_whole_numbers_of_any_type_become_int64():
    for dtype in (np.int8, np.uint64, np.float32, np.float64):
        numbers = whole_numbers("ids", np.array([0, 3, 100], dtype=dtype))
        assert numbers.dtype == np.int64
        assert numbers.tolist() == [0, 3, 100]
    for wrong in (0.5, np.nan, np.inf, LARGEST_ID + 1, -LARGEST_ID - 1):
        with pytest.raises(ValueError, match="ids: expected whole numbers"):
            whole_numbers("ids", np.array([1.0, wrong]))
    with pytest.raises(TypeError, match="ids: expected whole numbers, got <U1"):
        whole_numbers("ids", ["a"])


def test_the_sizes_of_blocks():
    assert block_counts([0, 0, 2], "abc") == {"a": 2, "b": 0, "c": 1}
    assert block_counts(np.array([], dtype=int), "ab") == {"a": 0, "b": 0}
    for wrong, message in [
        ([1, 0], "consecutive ids"),
        ([-1, 0], "consecutive ids"),
        ([0, 3], r"expected 2 node types \(a, b\), got 4"),
        ([0.0, 1.0], "an integer node type for each node"),
        ([[0, 1]], "an integer node type for each node"),
    ]:
        with pytest.raises(ValueError, match=message):
            block_counts(wrong, "ab")


def test_features_are_cut_by_type_and_are_sparse_where_that_is_faster():
    dense = np.arange(12.0).reshape(6, 2)
    parts = split_features(dense, {"a": 2, "b": 4})
    assert torch.equal(parts["a"], torch.tensor(dense[:2]).float())
    assert torch.equal(parts["b"], torch.tensor(dense[2:]).float())
    few = sp.eye_array(100, format="csr")
    part = split_features(few, {"a": 100})["a"]
    assert part.layout == torch.sparse_coo
    assert torch.equal(part.to_dense(), torch.eye(100))
    assert torch.equal(one_hot(100).to_dense(), torch.eye(100))
    assert one_hot(0).shape == (0, 0)
    with pytest.raises(ValueError, match=r"features of 5 nodes, got shape \(6, 2\)"):
        split_features(dense, {"a": 5})


def test_features_whose_rows_run_backwards_are_refused_before_they_are_sorted():
    matrix = sp.csr_array(np.ones((3, 2)))
    matrix.indices = matrix.indices[::-1].copy()  # unsorted, so a conversion would sort it
    matrix.has_sorted_indices = False
    matrix.indptr = np.array([0, 2**31 - 1, 4, 6], dtype=np.int32)
    with pytest.raises(ValueError, match="non-decreasing"):
        split_features(matrix, {"a": 3})


def test_only_two_variants_of_node_types():
    check_variant("diffmg")
    with pytest.raises(ValueError, match=r"node_types must be one of .* got 'gtn'"):
        check_variant("gtn")
