"""Defaults look at the graph, not at its name."""

import torch

from tensus_tn.rules import KnowledgeGraph, RuleModel, defaults
from tensus_tn.rules.frontier import WIDTH
from tensus_tn.rules.walks import walk_graph
from tests.rules.graphs import random_graph


def chain(n):
    return KnowledgeGraph.from_triples([(k, 0, k + 1) for k in range(n)])


def full(n):
    return KnowledgeGraph.from_triples([(i, 0, j) for i in range(n) for j in range(n)])


def test_rules_are_longer_where_walks_stay_small(monkeypatch):
    assert defaults.steps(walk_graph(chain(900))) == 4
    assert defaults.steps(walk_graph(full(12))) == 3
    monkeypatch.setattr(defaults, "_MANY", 100)
    assert defaults.steps(walk_graph(full(12))) == 2


def test_queries_share_a_frontier_where_they_reach_the_same():
    assert RuleModel(chain(500), steps=2).width == 1
    assert RuleModel(full(12), steps=2).width == WIDTH


def test_the_width_changes_nothing_but_the_time():
    graph = random_graph(20, 2, 60)
    model = RuleModel(graph, steps=2, dtype=torch.float64)
    results = []
    for width in (1, WIDTH):
        model.width = width
        results.append(model.scores([("r0", k) for k in range(10)]))
    torch.testing.assert_close(*results)


def test_training_asks_what_it_can_afford(monkeypatch):
    graph = full(12)
    model = RuleModel(graph, steps=2, rank=1)
    walker, weights = model.walker(width=model.width), model.weights()
    edges = 12 + 2 * 144  # of the whole graph, which every link but the first looks at
    per_query = float(walker.costs(weights, defaults._some_queries(model.walks)).double().mean())
    assert edges <= per_query <= 2 * edges
    monkeypatch.setattr(defaults, "_AFFORDABLE", 1234 * per_query / model.width)
    assert defaults.affordable(walker, weights) == 1200
    monkeypatch.setattr(defaults, "_AFFORDABLE", 90 * per_query / model.width)
    report = model.fit(progress=False)
    assert len(report.history) == 3  # over 30 of 288 queries each
    assert len(model.fit(epochs=1, progress=False).history) == 1
