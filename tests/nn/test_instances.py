"""Instances of a meta-graph, counted and listed by hand."""

import itertools

import pytest
import torch

from tensus_tn import Dag, RelationGraph
from tensus_tn.nn import MetaGraph
from tests.nn.meta_graphs import DAGS, dense, random_graph


def instances_by_hand(graph, meta_graph):
    """All assignments of nodes to states that fit, found by trying every one."""
    edges = {
        name: {(int(c), int(r)) for r, c in torch.nonzero(a)} for name, a in dense(graph).items()
    }
    links = meta_graph.links
    states = sorted({state for edge in links for state in edge}, key=meta_graph.dag.nodes.index)
    found = []
    for nodes in itertools.product(range(graph.num_nodes), repeat=len(states)):
        at = dict(zip(states, nodes, strict=True))
        if all(
            at[j] == at[k]
            if meta_graph.relations[j, k] == "identity"
            else (at[j], at[k]) in edges[meta_graph.relations[j, k]]
            for j, k in links
        ):
            found.append(at)
    return found if links else []


@pytest.mark.parametrize("dag", DAGS.values(), ids=DAGS)
def test_instances_are_counted_and_listed(dag):
    found = []
    for seed in range(6):
        torch.manual_seed(seed)
        graph = random_graph(5, edges=10, normalize=None, self_loops=False)
        names = ["PA", "AP", "X", "identity", "zero"]
        relations = {e: names[int(torch.randint(5, ()))] for e in dag.edges}
        meta_graph = MetaGraph(dag, relations)
        found.append(meta_graph.count(graph))
        expected = instances_by_hand(graph, meta_graph)
        assert found[-1] == len(expected)
        assert meta_graph.instances(graph, limit=10**6) == expected
        assert meta_graph.instances(graph, limit=2) == expected[:2]
    assert any(found)


def test_self_loops_are_no_instances_and_large_tables_are_refused():
    index = {"A": torch.tensor([[0, 0, 1], [1, 2, 2]])}
    relations = {(0, 1): "A", (0, 2): "A", (1, 2): "A"}
    triangle = MetaGraph(Dag.complete(2), relations)
    for loops in (False, True):
        graph = RelationGraph.from_edge_index(index, 3, normalize="row", self_loops=loops)
        assert triangle.count(graph) == 1
    symmetric = RelationGraph.from_edge_index(index, 3, normalize="sym", self_loops=True)
    assert symmetric.num_edges == 3 + 3  # loops are stored: node 0 sends, but does not receive
    assert triangle.count(symmetric) == 1
    relations = {(0, 1): "A", (0, 2): "identity", (1, 2): "identity"}
    loop = MetaGraph(Dag.complete(2), relations)  # all states are one node
    with_loop = {"A": torch.tensor([[0, 1, 1], [1, 1, 2]])}
    for options in ({}, {"self_loops": True}, {"self_loops": True, "normalize": "sym"}):
        assert loop.count(RelationGraph.from_edge_index(with_loop, 3, **options)) == 1
    every = RelationGraph.from_edge_index(
        {"A": torch.cartesian_prod(*[torch.arange(6)] * 2).t()}, 6
    )
    assert triangle.count(every) == 6**3
    with pytest.raises(ValueError, match="a table of 216 rows, above the limit of 100"):
        triangle.count(every, max_rows=100)
    with pytest.raises(ValueError, match="no relation 'B'"):
        MetaGraph(Dag.path(1), {(0, 1): "B"}).count(graph)


def test_a_limit_that_is_none_is_refused():
    graph = random_graph(5)
    with pytest.raises(ValueError, match="limit must be a positive integer, got 0"):
        MetaGraph(Dag.path(1), {(0, 1): "PA"}).instances(graph, 0)
