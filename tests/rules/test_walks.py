"""The edges that walks go along, and the known answers of queries."""

import pytest
import torch

from tensus_tn.rules import KnowledgeGraph
from tensus_tn.rules.walks import KnownAnswers, both_ways, walk_graph
from tests.rules.graphs import random_graph


def matrices(graph, scaling):
    """Every operator as a dense matrix: entry (target, source)."""
    g = walk_graph(graph, scaling, torch.float64)
    A = torch.zeros(g.num_operators, g.num_entities, g.num_entities, dtype=torch.float64)
    A[g.edges.op.long(), g.edges.target.long(), g.sources()] = g.edges.value
    return A


@pytest.mark.parametrize("seed", range(3))
def test_edges_are_the_relations_their_inverses_and_the_identity(seed):
    graph = random_graph(seed=seed)
    R = graph.num_relations
    A = matrices(graph, "none")
    want = torch.zeros_like(A)
    for head, relation, tail in graph.train.tolist():
        want[relation, tail, head] = 1
        want[R + relation, head, tail] = 1
    want[2 * R] = torch.eye(graph.num_entities)
    assert torch.equal(A, want)
    edges = walk_graph(graph).edges
    facts = edges.fact[edges.fact >= 0]
    assert torch.equal(facts.bincount(), torch.full((len(graph.train),), 2))


def test_scaling():
    graph = random_graph()
    A = matrices(graph, "none")
    out, into = A.sum(1, keepdim=True).clamp_min(1), A.sum(2, keepdim=True).clamp_min(1)
    torch.testing.assert_close(matrices(graph, "sqrt"), A / out.sqrt())
    torch.testing.assert_close(matrices(graph, "both"), A / (out * into).sqrt())
    with pytest.raises(ValueError, match="scaling must be one of"):
        walk_graph(graph, "row")


def test_popular_answers_are_counted():
    graph = random_graph()
    g = walk_graph(graph)
    asked = both_ways(graph.train, graph.num_relations)
    for r in range(2 * graph.num_relations):
        found = range(int(g.popular.ptr[r]), int(g.popular.ptr[r + 1]))
        counted = {int(g.popular.entity[k]): int(g.popular.times[k]) for k in found}
        answers = asked[asked[:, 0] == r, 2].tolist()
        assert counted == {v: answers.count(v) for v in set(answers)}


def test_known_answers():
    graph = random_graph()
    known = KnownAnswers(graph.known, graph.num_relations, graph.num_entities)
    asked = both_ways(graph.known, graph.num_relations)
    relation, start = torch.cartesian_prod(
        torch.arange(2 * graph.num_relations), torch.arange(graph.num_entities)
    ).T
    ptr, answers = known.of(relation, start)
    for n, (r, s) in enumerate(zip(relation.tolist(), start.tolist(), strict=True)):
        want = {a for i, x, a in asked.tolist() if (i, x) == (r, s)}
        got = answers[ptr[n] : ptr[n + 1]].tolist()
        assert len(got) == len(want)
        assert set(got) == want


def test_no_known_answers():
    graph = KnowledgeGraph.from_triples([(0, 0, 1)])
    known = KnownAnswers(graph.test, 1, 2)
    ptr, answers = known.of(torch.tensor([0, 1]), torch.tensor([0, 1]))
    assert ptr.tolist() == [0, 0, 0]
    assert len(answers) == 0
