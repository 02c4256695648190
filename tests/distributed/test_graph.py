import copy
import pickle

import pytest
import torch

from tensus_tn import Dag, RelationGraph, propagate, propagate_dag
from tensus_tn.distributed import DistributedGraph, Partition, partition
from tests.distributed import tasks
from tests.distributed.equal import NATIVE, assert_same

CASES = [
    # graph, dag, partition, made from, whether a link uses one relation only
    ("plain", "complete", "metis", "edges", False),
    ("rows", "complete", "metis", "graph", False),
    ("rows", "path", "range", "edges", True),
    ("sym", "path", "random", "edges", False),
    ("sym with loops", "complete", "metis", "edges", True),
    ("folded", "link", "lopsided", "edges", False),
    ("valued", "complete", "lopsided", "edges", False),
    ("valued", "path", "metis", "graph", False),
    ("float64", "complete", "random", "edges", False),
]


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_results_and_gradients_are_those_of_one_process(crew, size, case):
    if size == 1:
        case = (*case[:2], "range", *case[3:])
    assert_same(crew.run(size, tasks.compare, *case)[0])


@pytest.mark.parametrize("case", [CASES[1], CASES[2], CASES[6]], ids=str)
def test_eight_processes(crew, case):
    assert_same(crew.run(8, tasks.compare, *case)[0])


def test_narrow_states(crew):
    assert_same(crew.run(2, tasks.compare, *CASES[1], torch.bfloat16)[0], tolerance=2e-2)


@pytest.mark.parametrize("method", ["metis", "lopsided"])
def test_bytes_are_those_of_the_halo_alone(crew, method):
    for received, bound, one_pass, halo in crew.run(4, tasks.traffic, "complete", method):
        assert received == bound
        assert one_pass == halo * tasks.FEATURES * 4


@pytest.mark.skipif(not NATIVE, reason="plain PyTorch mixes no links first")
def test_links_that_are_mixed_first_fetch_the_source_once_more(crew):
    """The gradient of their weights needs the tail's halo; here that of the source, of rank 1."""
    for received, bound, one_pass, _ in crew.run(2, tasks.traffic, "path", "metis"):
        assert received == bound + one_pass


def test_a_network_takes_it_in_place_of_a_whole_graph(crew):
    for same, error in crew.run(3, tasks.typed):
        assert same or not NATIVE
        assert error < 1e-4 if not NATIVE else error < 2e-5


def test_an_edge_into_a_node_of_another_is_refused_on_all(crew):
    for good, error in crew.outcomes(2, tasks.foreign_edge):
        assert not good
        assert "which process 0 owns" in error


def whole(**options):
    index, _ = tasks.edges(3)
    return RelationGraph.from_edge_index(index, 40, **options)


def test_one_process_needs_no_group():
    graph = whole(identity=True)
    part = DistributedGraph.from_graph(graph, partition(graph, 1))
    h, w = torch.randn(40, 2, 3), torch.randn(3, 2, 2)
    torch.testing.assert_close(propagate(part, h, w), propagate(graph, h, w))
    rows = torch.tensor([3, 3, 1])
    weights = {(0, 1): w}
    expected = propagate_dag(graph, Dag.path(1), h, weights, rows=rows, support=torch.arange(20))
    given = propagate_dag(part, Dag.path(1), h, weights, rows=rows, support=torch.arange(20))
    torch.testing.assert_close(given, expected)


def test_all_states_and_their_gradients():
    graph, dag = whole(), Dag.complete(3)
    part = DistributedGraph.from_graph(graph, partition(graph, 1))
    h, _, weights = tasks.numbers(graph, dag, 2, 40, torch.float32)
    results = []
    for g in (graph, part):
        source = h.clone().requires_grad_()
        states = propagate_dag(g, dag, source, weights, return_states=True)
        loss = states[1].square().sum() + states[2].sum()  # and nothing of the sink
        results.append(torch.autograd.grad(loss, [source, *weights.values()], allow_unused=True))
    for a, b in zip(*results, strict=True):
        zero = torch.zeros_like(a if a is not None else b)
        torch.testing.assert_close(zero if a is None else a, zero if b is None else b)


def test_only_what_is_wanted_has_a_gradient():
    graph = whole()
    part = DistributedGraph.from_graph(graph, partition(graph, 1))
    h, w = torch.randn(40, 1, 3), torch.randn(2, 1, 2)
    for needs in ((True, False), (False, True)):
        inputs = [x.clone().requires_grad_(n) for x, n in zip((h, w), needs, strict=True)]
        propagate(part, *inputs).sum().backward()
        assert [x.grad is not None for x in inputs] == list(needs)
    with torch.no_grad():
        assert not propagate(part, h, w).requires_grad


def test_what_is_for_one_process_is_refused():
    graph = whole()
    part = partition(graph, 1)
    learned = graph.with_values(torch.ones(graph.num_edges).requires_grad_())
    with pytest.raises(ValueError, match="learn are for one process"):
        DistributedGraph.from_graph(learned, part)
    index, weight = tasks.edges(3, valued=True)
    learning = {"A": weight["A"].requires_grad_()}
    with pytest.raises(ValueError, match="learn are for one process"):
        DistributedGraph.from_edge_index(index, part, edge_weight=learning)
    g = DistributedGraph.from_graph(graph, part)
    h, w = torch.randn(40, 1, 3, requires_grad=True), torch.randn(2, 1, 1)
    (grad,) = torch.autograd.grad(propagate(g, h, w).square().sum(), h, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()
    with pytest.raises(TypeError, match=r"float64.*dtype=torch.float64"):
        propagate(g, h.double(), w.double())
    plan = graph.plan_rows(Dag.path(1), torch.tensor([1]))
    with pytest.raises(TypeError, match="plans are for whole graphs"):
        propagate_dag(g, Dag.path(1), h, {(0, 1): w}, rows=plan)
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="lives with its processes"):
            copied(g)


def test_a_partition_must_fit():
    graph = whole()
    halves = partition(graph, 2)
    with pytest.raises(ValueError, match="2 parts needs as many processes, there are 1"):
        DistributedGraph.from_graph(graph, halves)
    other = Partition(torch.zeros(39, dtype=torch.int64), 1, {"node": 39})
    with pytest.raises(ValueError, match="'node': 39"):
        DistributedGraph.from_graph(graph, other)
