import pytest
import torch

from tensus_tn import Dag, RelationGraph
from tensus_tn.distributed import DistributedGraph, partition
from tensus_tn.distributed.passes import Problem
from tests.distributed import tasks
from tests.distributed.equal import NATIVE


def graph():
    index, _ = tasks.edges(3)
    whole = RelationGraph.from_edge_index(index, 40)
    return DistributedGraph.from_graph(whole, partition(whole, 1))


def test_weights_are_split_by_links():
    problem = Problem((1, 2, 1), (0, 1, 0), (1, 2, 2), None)
    parts = problem.split(torch.arange(2 * (2 + 2 + 1)))
    assert [tuple(p.shape) for p in parts] == [(2, 1, 2), (2, 2, 1), (2, 1, 1)]
    assert torch.equal(torch.cat([p.flatten() for p in parts]), torch.arange(10))


def test_unused_weights_become_zero():
    problem = Problem((1, 1, 1), (0, 1), (1, 2), (1, 0, 0, 1))
    w = torch.ones(4)
    problem.clear_unused(w)
    assert w.tolist() == [1, 0, 0, 1]


@pytest.mark.skipif(not NATIVE, reason="plain PyTorch mixes no links first")
def test_the_plan_is_that_of_the_whole_graph():
    """One link from a wide state to a narrow one is mixed first, unless the graph has few edges."""
    g, problem = graph(), Problem((8, 1), (0,), (1,), None)
    assert problem.mixed_first(g, backward=False) == [1]
    object.__setattr__(g, "edges_by_relation", torch.tensor([2, 2]))
    assert problem.mixed_first(g, backward=False) == [0]


@pytest.mark.parametrize("size", [2, 4])
def test_a_rank_of_eight_mixes_first_both_ways(crew, size):
    y, dh, error = crew.run(size, tasks.compare, "rows", "path", "metis", "graph", False)[0]
    assert error < 2e-6
    assert (y and dh) or not NATIVE
    assert Dag.path(3) == tasks.DAGS["path"][0]
