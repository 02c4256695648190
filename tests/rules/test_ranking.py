"""Ranks under every rule for ties, against a ranker that sorts nothing and counts everything."""

import math

import pytest
import torch

from tensus_tn.rules import Ranking, RuleModel
from tensus_tn.rules.ranking import TIES
from tensus_tn.rules.walks import both_ways
from tests.rules.graphs import random_graph


def brute_force(model, graph):
    """(lowest, highest) rank of every answer, queries in the order of both_ways."""
    asked = both_ways(graph.test, graph.num_relations)
    known = {tuple(row) for row in both_ways(graph.known, graph.num_relations).tolist()}
    found = []
    for r, s, o in asked.tolist():
        scores = model.scores(torch.tensor([[r, s]]))[0]
        rivals = [v for v in range(graph.num_entities) if v != o and (r, s, v) not in known]
        higher = sum(bool(scores[v] > scores[o]) for v in rivals)
        equal = sum(bool(scores[v] == scores[o]) for v in rivals)
        found.append((r, 1 + higher, 1 + higher + equal))
    return sorted(found)


@pytest.mark.parametrize("seed", range(3))
def test_against_brute_force(seed):
    graph = random_graph(12, 3, 20, seed=seed, test=8)
    model = RuleModel(graph, steps=2, rank=2, seed=seed, dtype=torch.float64)
    ranking = model.rank(graph.test)
    low, high = ranking.ranks("optimistic"), ranking.ranks("pessimistic")
    rows = sorted(zip(ranking.relation.tolist(), low.tolist(), high.tolist(), strict=True))
    assert rows == brute_force(model, graph)
    assert bool((high > low).any())  # there are ties to decide
    torch.testing.assert_close(ranking.ranks("mean"), (low + high) / 2)
    drawn = torch.stack([model.rank(graph.test, seed=k).ranks("random") for k in range(300)])
    assert torch.equal(drawn, drawn.round())
    assert bool(((drawn >= low) & (drawn <= high)).all())
    spread = (high - low).clamp_min(1) / 12**0.5
    assert bool(((drawn.mean(0) - (low + high) / 2).abs() < 5 * spread / 300**0.5 + 1e-9).all())


def test_metrics():
    ranking = Ranking(
        torch.tensor([0, 1, 2, 3]), torch.tensor([0, 1, 4, 20]), torch.zeros(4).long(), ("r", "s")
    )
    m = ranking.metrics()
    assert m["mrr"] == pytest.approx((1 + 1 / 2 + 1 / 5 + 1 / 21) / 4)
    assert m["mr"] == pytest.approx((1 + 2 + 5 + 21) / 4)
    assert (m["hits@1"], m["hits@3"], m["hits@10"]) == (0.25, 0.5, 0.75)
    assert ranking.metrics(ask="tail")["mrr"] == pytest.approx(0.75)
    assert ranking.metrics(ask="head")["mr"] == pytest.approx(13)
    assert ranking.per_relation()["r"]["mrr"] == pytest.approx((1 + 1 / 5) / 2)
    assert set(ranking.to_dict()["by ties"]) == set(TIES)
    assert "pessimistic" in str(ranking)
    assert math.isnan(Ranking(*[torch.zeros(0).long()] * 3, ("r",)).mrr)


def test_errors():
    graph = random_graph()
    model = RuleModel(graph, steps=1)
    with pytest.raises(ValueError, match="ties must be one of"):
        model.rank(graph.test, ties="lucky")
    with pytest.raises(ValueError, match="ask must be"):
        model.rank(graph.test).metrics(ask="both")
    with pytest.raises(ValueError, match=r"triples \(n, 3\)"):
        model.rank(torch.zeros(2, 2).long())


def test_a_filter_of_ones_own():
    graph = random_graph(12, 2, 30, test=5)
    model = RuleModel(graph, steps=2)
    none = graph.train[:0]
    assert int(model.rank(filter=none).higher.sum()) > int(model.rank().higher.sum())
