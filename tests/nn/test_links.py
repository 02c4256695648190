"""Propagation along single relations."""

import pytest
import torch

from tensus_tn import Dag
from tensus_tn.nn import links
from tests.nn.meta_graphs import DAGS, dense, random_graph, sink_state


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
    same = dict.fromkeys(dag.edges, "X")
    expected = sink_state(dense(graph), dag, h, same, weights)
    torch.testing.assert_close(links.follow(graph, dag, h, same, weights), expected)
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
