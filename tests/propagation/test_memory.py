"""Sizes that are computed are those of the tensors, and stand in the error where they do not fit."""

import pytest
import torch

from tensus_tn import Dag, RelationGraph, propagate, propagate_dag
from tensus_tn.propagation.memory import Memory, is_out_of_memory, memory_of


def a_graph(nodes=50, **options):
    edges = {name: torch.randint(nodes, (2, 200)) for name in "AB"}
    return RelationGraph.from_edge_index(edges, nodes, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("dag", [Dag.path(1), Dag.path(3), Dag.complete(3)])
def test_states_are_as_large_as_it_says(dag, dtype):
    graph = a_graph()
    ranks = {node: 1 if node in (dag.source, dag.sink) else 2 for node in dag.nodes}
    weights = {(j, k): torch.ones(2, ranks[j], ranks[k]) for j, k in dag.edges}
    h = torch.randn(50, 8).to(dtype)
    states = propagate_dag(graph, dag, h, weights, return_states=True)
    for rank in (2, ranks):
        memory = graph.memory(dag, rank, 8, dtype)
        assert memory.parts["input"] == h.nbytes
        assert memory.parts["states"] == sum(s.nbytes for s in list(states.values())[1:])
        assert memory.parts["gradients"] == sum(s.nbytes for s in states.values())
        assert memory.training == sum(memory.parts.values())


@pytest.mark.parametrize("options", [{}, {"normalize": "row"}, {"normalize": "sym"}])
def test_edges_are_as_large_as_it_says(options):
    graph = a_graph(**options)
    memory = graph.memory(Dag.path(2), 2, 4)
    for name, way in (("edges, forward", graph.forward), ("edges, transposed", graph.backward)):
        tensors = [t for t in vars(way).values() if t is not None]
        assert memory.parts[name] == sum(t.numel() * t.element_size() for t in tensors)


def test_counts_alone_come_near_and_never_below():
    graph = a_graph(nodes=200, normalize="row")
    exact = graph.memory(Dag.path(2), 2, 4)
    counts = {"nodes": 200, "edges": graph.num_edges}
    known = memory_of(Dag.path(2), 2, 4, **counts, segments=graph.num_segments)
    assert known.parts["edges, forward"] == exact.parts["edges, forward"]
    assert exact.training <= memory_of(Dag.path(2), 2, 4, **counts).training <= 1.2 * exact.training


def test_machines_share_the_work():
    counts = {"nodes": 8000, "edges": 80_000}
    one, each = (memory_of(Dag.path(2), 2, 64, **counts, machines=m) for m in (1, 8))
    assert each.training == pytest.approx(one.training / 8, rel=0.01)
    halo = memory_of(Dag.path(2), 2, 64, **counts, machines=8, halo=500)
    assert halo.training - each.training == 500 * 2 * 64 * 4
    assert str(halo).splitlines()[-1].split() == ["training", "step", f"{halo.training:,}"]


def test_large_graphs_have_wide_indices():
    small, large = (
        memory_of(Dag.path(1), 1, 1, nodes=10, edges=edges, segments=10)
        for edges in (2**31 - 1, 2**31)
    )
    assert large.parts["edges, forward"] > 1.99 * small.parts["edges, forward"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": 0}, "features must be a positive integer"),
        ({"nodes": -1}, "nodes must be"),
        ({"edges": -1}, "edges must be"),
        ({"machines": 0}, "machines must be"),
        ({"rank": 0}, "rank must be"),
        ({"rank": {0: 1}}, r"no entry for the states \[1, 2\]"),
    ],
)
def test_arguments_are_checked(changes, message):
    given = {"dag": Dag.path(2), "rank": 2, "features": 4, "nodes": 3, "edges": 2, **changes}
    with pytest.raises(ValueError, match=message):
        memory_of(**given)


def test_what_does_not_fit_is_named_with_its_sizes():
    graph, wide = a_graph(), torch.zeros(1, 1, 1).expand(50, 1, 2**42)
    with pytest.raises(
        MemoryError, match=r"over 50 nodes, takes in bytes\n(.*\n)*training step +3,518,437"
    ):
        propagate(graph, wide, torch.ones(2, 1, 1))
    with pytest.raises(MemoryError, match="over 50 nodes"):
        propagate_dag(
            graph, Dag.path(1), wide, {(0, 1): torch.ones(2, 1, 1)}, rows=torch.arange(50)
        )


def test_other_errors_stay_what_they_are():
    assert not is_out_of_memory(RuntimeError("h must be float32"))
    assert is_out_of_memory(RuntimeError("std::bad_alloc"))
    assert isinstance(memory_of(Dag.path(1), 1, 1, nodes=1, edges=0), Memory)
