"""Parts of a graph, and propagation along single relations."""

import gc
import weakref

import pytest
import torch
from meta_graphs import DAGS, dense, random_graph, sink_state

from tensus_tn import Dag, propagate
from tensus_tn.nn import links


@pytest.mark.parametrize(
    "options",
    [
        {"normalize": None, "self_loops": False},
        {"normalize": "row"},
        {"normalize": "sym"},
        {"normalize": {"X": "sym"}, "self_loops": False},
    ],
)
@pytest.mark.parametrize("names", [("AP",), ("PA", "X"), ("AP", "X", "identity"), ("zero",)])
def test_a_part_has_the_same_matrices_and_gradients(options, names):
    graph = random_graph(12, edges=20, **options)
    part = links.select(graph, names)
    assert part.relation_names == names
    whole, selected = dense(graph), dense(part)
    for name in names:
        assert torch.equal(whole[name], selected[name])
    h = torch.randn(12, 2, 3, dtype=torch.float64, requires_grad=True)
    w = torch.randn(len(names), 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda h, w: propagate(part, h, w), (h, w))


def test_a_part_of_learned_values_and_new_values_of_a_part():
    graph = random_graph(12, edges=20)
    h = torch.randn(12, 2, 3, dtype=torch.float64, requires_grad=True)
    w = torch.randn(2, 2, 2, dtype=torch.float64)
    values = torch.rand(graph.num_edges, dtype=torch.float64, requires_grad=True)

    def of_learned(h, values):
        return propagate(links.select(graph.with_values(values), ("PA", "X")), h, w)

    assert torch.autograd.gradcheck(of_learned, (h, values))
    part = links.select(graph, ("PA", "X"))
    values = torch.rand(part.num_edges, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda h, v: propagate(part.with_values(v), h, w), (h, values))


def test_parts_are_kept_as_long_as_their_graph_and_not_too_many():
    graph = random_graph()
    assert links.select(graph, ("PA",)) is links.select(graph, ("PA",))
    assert links.select(graph, graph.relation_names) is graph
    part = weakref.ref(links.select(graph, ("PA",)))
    del graph
    gc.collect()
    assert part() is None
    many = random_graph(3, names=[f"r{k}" for k in range(links._MAX_PARTS + 3)], edges=2)
    for name in many.relation_names:
        links.select(many, (name,))
        assert len(links._PARTS[many]) <= links._MAX_PARTS


def test_follow_leaves_out_what_leads_nowhere():
    graph, h = random_graph(), torch.randn(7, 2, dtype=torch.float64)
    dag = Dag.complete(3)
    relations = {(0, 1): "PA", (0, 2): "zero", (0, 3): "AP"}
    relations |= {(1, 2): "zero", (1, 3): "identity", (2, 3): "X"}  # state 2 receives nothing
    weights = {edge: torch.rand((), dtype=torch.float64) for edge in dag.edges}
    expected = sink_state(dense(graph), dag, h, relations, weights)
    torch.testing.assert_close(links.follow(graph, dag, h, relations, weights), expected)
    useful = [edge for _, edges in links.useful_links(dag, relations) for edge in edges]
    assert set(useful) == {(0, 1), (0, 3), (1, 3)}
    few = dict.fromkeys(dag.edges, "X")  # so few that they become a graph of their own
    expected = sink_state(dense(graph), dag, h, few, weights)
    torch.testing.assert_close(links.follow(graph, dag, h, few, weights), expected)
    assert list(links._PARTS[graph]) == [("X",)]
    nothing = dict.fromkeys(dag.edges, "zero")
    assert torch.equal(links.follow(graph, dag, h, nothing, weights), torch.zeros_like(h))


@pytest.mark.parametrize("dag", DAGS.values(), ids=DAGS)
def test_useful_links_are_those_on_a_path(dag):
    for seed in range(20):
        g = torch.Generator().manual_seed(seed)
        kept = [edge for edge in dag.edges if torch.rand((), generator=g) < 0.6]
        relations = {edge: "A" if edge in kept else "zero" for edge in dag.edges}

        def paths(node, kept=kept):
            if node == dag.sink:
                return [()]
            return [(e, *rest) for e in kept if e[0] == node for rest in paths(e[1])]

        expected = {edge for path in paths(dag.source) for edge in path}
        found = links.useful_links(dag, relations)
        assert {edge for _, edges in found for edge in edges} == expected
