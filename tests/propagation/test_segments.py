"""The sparse structure: its indices are as narrow as they may be; the order of rows on a GPU."""

import torch

from tensus_tn.propagation.relation_graph import RelationGraph
from tensus_tn.propagation.segments import order_rows
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


def test_long_rows_come_in_parts_and_the_others_by_their_edges():
    degree = torch.randint(9, (50,), generator=torch.Generator().manual_seed(0))
    row_ptr, first = (
        torch.arange(51),
        torch.cat([torch.zeros(1, dtype=torch.long), degree.cumsum(0)]),
    )
    parts, long_rows, short_rows = order_rows(row_ptr, first, most=3)
    rows = torch.cat([long_rows[:, 0], short_rows])
    assert torch.equal(rows.sort().values, torch.arange(50))
    assert torch.equal(degree[rows], degree.sort(descending=True).values)
    assert degree[long_rows[:, 0]].min() > 3 >= degree[short_rows].max()
    for row, begin, count in long_rows.tolist():
        own = parts[begin : begin + count]
        assert own[:, 0].tolist() == count * [row]
        borders = [first[row].item(), *own[:, 2].tolist()]
        assert [*own[:, 1].tolist(), first[row + 1].item()] == borders
        sizes = own[:, 2] - own[:, 1]
        assert sizes.max() <= 3
        assert sizes.max() - sizes.min() <= 1
    assert long_rows[:, 2].sum() == len(parts)
