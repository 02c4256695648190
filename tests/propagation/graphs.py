"""A small typed graph, its dense form, and what must hold of every graph."""

import numpy as np
import torch


def dense(graph):
    return {name: matrix.toarray() for name, matrix in graph.to_scipy().items()}


def transposed_dense(graph):
    """The relations' edges rebuilt from the transposed structure alone, transposed back."""
    b = graph.backward
    seg = b.edge_seg()
    out = np.zeros((graph.num_relations, graph.num_nodes, graph.num_nodes))
    np.add.at(
        out,
        (b.seg_rel[seg].numpy(), b.col.numpy(), b.seg_row()[seg].numpy()),
        b.values(graph.dtype).numpy(),
    )
    return out


def assert_well_formed(graph):
    """Every promise of the layout: sorted, no empty segment, no duplicate, mirrored."""
    edges = np.zeros((graph.num_relations, graph.num_nodes, graph.num_nodes))
    for s in (graph.forward, graph.backward):
        n, num_segments, num_edges = graph.num_nodes, s.num_segments, s.num_edges
        assert s.row_ptr.shape == (n + 1,)
        assert s.seg_ptr.shape == (num_segments + 1,)
        assert s.row_ptr[0] == 0
        assert s.row_ptr[-1] == num_segments
        assert s.seg_ptr[0] == 0
        assert s.seg_ptr[-1] == num_edges
        assert (s.row_ptr.diff() >= 0).all()
        assert (s.seg_ptr.diff() > 0).all()
        assert {s.row_ptr.dtype, s.seg_ptr.dtype, s.col.dtype} == {graph.index_dtype}
        assert s.seg_rel.dtype == torch.int32
        seg = s.edge_seg()
        keys = list(
            zip(s.seg_row()[seg].tolist(), s.seg_rel[seg].tolist(), s.col.tolist(), strict=True)
        )
        assert keys == sorted(set(keys))
        assert s.seg_val is None or s.edge_val is None
        if s is graph.forward:
            for (row, rel, col), value in zip(keys, s.values(graph.dtype).tolist(), strict=True):
                edges[rel, row, col] = value
    assert graph.backward.seg_loop is None
    np.testing.assert_array_equal(transposed_dense(graph), edges)
    perm = graph.backward.edge_perm
    assert torch.equal(graph.values()[perm], graph.backward.values(graph.dtype))


def edge_lists():
    """Two typed relations with duplicates, isolated nodes and an empty relation."""
    return {
        ("author", "writes", "paper"): torch.tensor([[0, 0, 2, 0], [1, 0, 1, 1]]),
        ("paper", "cites", "paper"): torch.tensor([[0], [3]]),
        ("paper", "in", "venue"): torch.empty(2, 0, dtype=torch.int64),
    }


COUNTS = {"author": 3, "paper": 4, "venue": 2}
EXPECTED = {  # global ids: authors 0-2, papers 3-6, venues 7-8; the receiving node is the row
    "author__writes__paper": {(4, 0): 2.0, (3, 0): 1.0, (4, 2): 1.0},
    "paper__cites__paper": {(6, 3): 1.0},
    "paper__in__venue": {},
}


def assert_expected(graph):
    assert graph.num_nodes == 9
    assert graph.node_types == {
        "author": slice(0, 3),
        "paper": slice(3, 7),
        "venue": slice(7, 9),
    }
    assert graph.relation_names == tuple(EXPECTED)
    for name, matrix in dense(graph).items():
        entries = {(int(i), int(j)): float(matrix[i, j]) for i, j in np.argwhere(matrix)}
        assert entries == EXPECTED[name]
    assert_well_formed(graph)


def assert_same(a, b):
    assert (a.relation_names, a.node_counts) == (b.relation_names, b.node_counts)
    assert torch.equal(a.loop, b.loop)
    for x, y in ((a.forward, b.forward), (a.backward, b.backward)):
        for name, tensor in vars(y).items():
            other = getattr(x, name)
            if tensor is None:
                assert other is None, name
            else:
                assert other.dtype == tensor.dtype
                assert torch.equal(other, tensor), name
