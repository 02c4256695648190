"""Normalisation, self-loops and special relations, against plain dense matrices."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tensus_tn.propagation.relation_graph import RelationGraph
from tests.propagation.graphs import assert_well_formed, dense


def dense_relation(matrix, normalize, self_loops):
    """The definition: normalise A, or A + I, by its row sums or by the roots of both sums."""
    a = matrix + np.eye(len(matrix)) * self_loops
    row, col = a.sum(1), a.sum(0)
    with np.errstate(divide="ignore"):
        if normalize == "row":
            return np.where(row > 0, 1 / row, 0)[:, None] * a
        if normalize == "sym":
            left, right = (np.where(d > 0, d**-0.5, 0) for d in (row, col))
            return left[:, None] * a * right
    return a


@st.composite
def relations(draw):
    """Up to three relations over up to seven nodes: weighted or not, often with empty rows."""
    n = draw(st.integers(1, 7))
    unit = draw(st.booleans())
    values = st.sampled_from([0.0, 0.0, 1.0] if unit else [0.0, 0.0, 1.0, 0.5, 3.0])
    rows = st.lists(st.lists(values, min_size=n, max_size=n), min_size=n, max_size=n)
    symmetric = draw(st.booleans())
    matrices = [np.array(draw(rows)) for _ in range(draw(st.integers(1, 3)))]
    return {f"r{i}": np.maximum(m, m.T) if symmetric else m for i, m in enumerate(matrices)}


@settings(max_examples=150)
@given(relations(), st.sampled_from([None, "row", "sym"]), st.booleans(), st.booleans())
def test_every_option_equals_the_dense_definition(matrices, normalize, self_loops, special):
    graph = RelationGraph.from_scipy(
        {name: sp.csr_array(m) for name, m in matrices.items()},
        normalize=normalize,
        self_loops=self_loops,
        identity=special,
        zero=special,
        dtype=torch.float64,
    )
    n = graph.num_nodes
    expected = {k: dense_relation(m, normalize, self_loops) for k, m in matrices.items()}
    if special:
        expected |= {"identity": np.eye(n), "zero": np.zeros((n, n))}
    assert graph.relation_names == tuple(expected)
    actual = dense(graph)
    for name, matrix in expected.items():
        np.testing.assert_allclose(actual[name], matrix, rtol=1e-14, atol=0, err_msg=name)
    assert_well_formed(graph)


def test_normalize_may_differ_between_relations():
    rng = np.random.default_rng(0)
    matrices = {name: rng.integers(0, 3, (6, 6)).astype(float) for name in "abc"}
    modes = {"a": "sym", "b": "row"}
    graph = RelationGraph.from_scipy(
        {k: sp.coo_array(m) for k, m in matrices.items()},
        normalize=modes,
        self_loops=True,
        dtype=torch.float64,
    )
    for name, matrix in matrices.items():
        expected = dense_relation(matrix, modes.get(name), True)
        np.testing.assert_allclose(dense(graph)[name], expected, rtol=1e-14)


def test_self_loops_identity_and_zero_cost_no_edges():
    a = sp.csr_array(np.array([[0, 1, 1], [0, 0, 0], [1, 0, 0]]))
    plain = RelationGraph.from_scipy({"a": a})
    full = RelationGraph.from_scipy(
        {"a": a}, normalize="row", self_loops=True, identity=True, zero=True
    )
    assert full.num_edges == plain.num_edges == 3
    assert full.num_segments == plain.num_segments == 2
    assert full.loop.tolist() == [1.0, 1.0, 0.0]
    torch.testing.assert_close(full.forward.seg_loop, torch.tensor([1 / 3, 1 / 2]))


@pytest.mark.parametrize("normalize", [None, "row"])
def test_values_that_depend_on_the_pair_only_are_stored_per_pair(normalize):
    a = sp.csr_array(np.array([[0, 1, 1], [0, 0, 0], [1, 0, 0]]))
    forward = RelationGraph.from_scipy({"a": a}, normalize=normalize).forward
    assert forward.edge_val is None
    assert (forward.seg_val is None) == (normalize is None)
    weighted = RelationGraph.from_scipy({"a": a * 2}).forward
    assert weighted.seg_val.tolist() == [2.0, 2.0]


def test_symmetric_normalisation_folds_self_loops_only_where_all_senders_receive():
    both_ways = sp.csr_array(np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]]))
    one_way = sp.csr_array(np.array([[0, 1, 0], [0, 0, 0], [0, 0, 0]]))
    graph = RelationGraph.from_scipy(
        {"both": both_ways, "one": one_way}, normalize="sym", self_loops=True
    )
    assert graph.loop.tolist() == [1.0, 0.0]
    assert graph.num_edges == 2 + (1 + 3)
    assert graph.forward.edge_added.sum() == 3
    assert repr(graph).endswith("both 2 + loops, one 1 + loops)")


@pytest.mark.parametrize("normalize", ["row", "sym"])
def test_a_row_of_stored_zeros_stays_zero(normalize):
    a = sp.coo_array((np.array([0.0, 0.0, 2.0]), ([0, 0, 1], [0, 1, 1])), (2, 2))
    graph = RelationGraph.from_scipy({"a": a}, normalize=normalize)
    assert graph.num_edges == 3
    np.testing.assert_allclose(dense(graph)["a"], [[0.0, 0.0], [0.0, 1.0]], rtol=1e-15)
