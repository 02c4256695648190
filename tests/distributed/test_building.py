import pytest
import torch

from tensus_tn import RelationGraph
from tensus_tn.distributed import DistributedGraph, partition
from tests.distributed import tasks


@pytest.mark.parametrize("kind", tasks.KINDS)
def test_own_rows_are_those_of_the_whole_graph(kind):
    """Structure and values, in the form in which one process keeps them."""
    options, valued = tasks.KINDS[kind]
    index, weight = tasks.edges(5, valued=valued)
    whole = RelationGraph.from_edge_index(index, 40, edge_weight=weight, **options)
    part = partition(whole, 1)
    expected = DistributedGraph.from_graph(whole, part)
    given = DistributedGraph.from_edge_index(index, part, edge_weight=weight, **options)
    assert given.relation_names == expected.relation_names
    assert torch.equal(given.loop, expected.loop)
    for a, b in ((given.forward, expected.forward), (given.backward, expected.backward)):
        for name in ("row_ptr", "seg_rel", "seg_ptr", "col", "seg_val", "edge_val", "seg_loop"):
            left, right = (getattr(rows.interior.segments, name) for rows in (a, b))
            if name == "seg_loop":
                left, right = a.interior.seg_loop, b.interior.seg_loop
            assert (left is None) == (right is None), name
            assert left is None or torch.equal(left.to(right.dtype), right), name


def test_no_edges_and_no_nodes():
    for nodes in (0, 3):
        whole = RelationGraph.from_edge_index({}, nodes, identity=True)
        given = DistributedGraph.from_edge_index({}, partition(whole, 1), identity=True)
        assert (given.num_nodes, given.num_edges) == (nodes, 0)


def test_bad_names_are_refused():
    index, _ = tasks.edges(3)
    part = partition(index, 1, num_nodes=40)
    with pytest.raises(ValueError, match="not among"):
        DistributedGraph.from_edge_index(index, part, normalize={"Z": "row"})
    with pytest.raises(ValueError, match="normalize must be"):
        DistributedGraph.from_edge_index(index, part, normalize="columns")
