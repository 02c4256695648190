"""The sparse structure: its indices are as narrow as they may be."""

import torch

from tensus_tn.propagation.relation_graph import RelationGraph
from tests.propagation.graphs import COUNTS, assert_expected, edge_lists


def test_indices_widen_beyond_the_limit(monkeypatch):
    narrow = RelationGraph.from_edge_index(edge_lists(), COUNTS)
    assert narrow.index_dtype == torch.int32
    monkeypatch.setattr("tensus_tn.propagation.segments.INT32_LIMIT", 9)
    wide = RelationGraph.from_edge_index(edge_lists(), COUNTS)
    assert wide.index_dtype == torch.int64
    assert wide.backward.edge_perm.dtype == torch.int64
    assert_expected(wide)
    monkeypatch.setattr("tensus_tn.propagation.segments.INT32_LIMIT", 10)
    assert RelationGraph.from_edge_index(edge_lists(), COUNTS).index_dtype == torch.int32
