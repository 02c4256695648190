import pytest
import torch

from tensus_tn import RelationGraph
from tensus_tn.distributed.halo import Halo
from tensus_tn.distributed.local_rows import find, split_rows, take_rows
from tensus_tn.distributed.processes import Processes
from tests.distributed import tasks


def dense(segments, columns, relations):
    """(row, relation, column) -> value."""
    out = torch.zeros(segments.num_rows, relations, columns)
    seg = segments.edge_seg()
    row, rel = segments.seg_row()[seg], segments.seg_rel[seg].long()
    out[row, rel, segments.col.long()] = segments.values(torch.float32)
    return out


@pytest.mark.parametrize("rows", [[], [0], [5, 2, 39, 5], list(range(40))])
def test_take_rows(rows):
    index, weight = tasks.edges(3, valued=True)
    for options in ({"edge_weight": weight}, {"normalize": "row", "self_loops": True}):
        graph = RelationGraph.from_edge_index(index, 40, **options)
        which = torch.tensor(rows, dtype=torch.int64)
        taken = take_rows(graph.forward, which)
        assert torch.equal(dense(taken, 40, 2), dense(graph.forward, 40, 2)[which])


def test_interior_boundary_and_both_together():
    index, _ = tasks.edges(3, count=40)
    graph = RelationGraph.from_edge_index(index, 40, normalize="row", self_loops=True)
    own = torch.arange(0, 40, 2)
    ids = torch.arange(1, 40, 2).flip(0)  # any order
    halo = Halo(Processes.of(None), ids, [20], torch.zeros(0, dtype=torch.int64), [0])
    mine = take_rows(graph.forward, own)
    rows = split_rows(mine, mine, own, halo)
    expected = dense(graph.forward, 40, 2)[own][:, :, torch.cat([own, ids])]
    assert 0 < len(rows.interior) < 20
    for part in (rows.interior, rows.boundary):
        assert torch.equal(dense(part.segments, 40, 2), expected[part.number.long()])
    assert (expected[rows.interior.number.long()][:, :, 20:] == 0).all()
    assert (expected[rows.boundary.number.long()][:, :, 20:] != 0).flatten(1).any(1).all()
    joined = rows.joined
    assert torch.equal(dense(joined.segments, 40, 2)[:20], expected)
    assert joined.segments.num_rows == 40
    assert joined.number.tolist() == [*range(20), *[-1] * 20]
    assert torch.equal(joined.seg_loop, mine.seg_loop)
    assert torch.equal(joined.pairs[1], mine.seg_rel)


def test_an_unknown_column_is_refused():
    index, _ = tasks.edges(3)
    graph = RelationGraph.from_edge_index(index, 40)
    none = torch.zeros(0, dtype=torch.int64)
    halo = Halo(Processes.of(None), none, [0], none, [0])
    mine = take_rows(graph.forward, torch.arange(20))
    with pytest.raises(ValueError, match="neither own nor in the halo"):
        split_rows(mine, mine, torch.arange(20), halo)


def test_find():
    at, there = find(torch.tensor([1, 4, 6]), torch.tensor([4, 5, 9, 1]))
    assert there.tolist() == [True, False, False, True]
    assert at[there].tolist() == [1, 0]
    assert not find(torch.zeros(0, dtype=torch.int64), torch.tensor([1]))[1].any()
