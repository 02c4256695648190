"""Rules: their weights against the tensor, their counts against loops over pairs."""

from itertools import product

import pytest
import torch

from tensus_tn import Dag
from tensus_tn.rules import Atom, RuleModel
from tensus_tn.rules.bodies import Counter, body_weights, inverted
from tests.rules.graphs import random_graph

GRAPH = random_graph(8, 2, 22, test=0)


def holds(body):
    """The pairs (x, y) of a body of operators, by walking."""
    steps = {}
    for h, r, t in GRAPH.train.tolist():
        steps.setdefault((r, h), set()).add(t)
        steps.setdefault((r + 2, t), set()).add(h)
    pairs = {(x, x) for x in range(GRAPH.num_entities)}
    for op in body:
        pairs = {(x, z) for x, y in pairs for z in steps.get((op, y), ())}
    return pairs


@pytest.mark.parametrize("body", [(), (0,), (3,), (0, 1), (1, 1, 2), (2, 0, 3)])
def test_counts_against_brute_force(body):
    truth = holds((0,))
    pairs = holds(body)
    answered = {x for x, _ in truth}
    want = (len(pairs), len(pairs & truth), sum(x in answered for x, _ in pairs))
    assert Counter(GRAPH.train, GRAPH.num_entities, 2).count(0, body) == want


@pytest.mark.parametrize("ties", ["node", "global"])
def test_weights_merge_the_places_of_the_identity(ties):
    model = RuleModel(GRAPH, steps=3, rank=2, ties=ties, dtype=torch.float64)
    dense = model.tensor("r1").to_dense().detach()
    merged = {}
    for entry in product(range(5), repeat=3):
        body = tuple(op for op in entry if op < 4)
        merged[body] = merged.get(body, 0.0) + float(dense[entry])
    bodies = sorted(merged)
    want = torch.tensor([merged[body] for body in bodies], dtype=torch.float64)
    torch.testing.assert_close(body_weights(model, 1, bodies), want)


def test_rules_are_sorted_counted_and_named():
    model = RuleModel(GRAPH, steps=2, rank=2)
    rules = model.rules("r0", 6)
    weights = [rule.weight for rule in rules]
    assert weights == sorted(weights, reverse=True)
    assert all(rule.support >= 1 and rule.weight > 0 for rule in rules)
    assert len({rule.body for rule in rules}) == len(rules)
    for rule in rules:
        body = tuple(int(atom.relation[1]) + 2 * atom.inverse for atom in rule.body)
        pairs = holds(body)
        assert (rule.body_size, rule.support) == (len(pairs), len(pairs & holds((0,))))
        assert rule.confidence == rule.support / rule.body_size
        assert rule.body != (Atom("r0"),)
    by_confidence = [rule.confidence for rule in model.rules("r0", 6, sort="confidence")]
    assert by_confidence == sorted(by_confidence, reverse=True)
    against = model.rules("r0", 3, negative=True)
    assert all(rule.weight < 0 for rule in against)


def test_rules_of_the_inverse_are_written_the_same_way_round():
    model = RuleModel(GRAPH, steps=2, rank=2)
    rules = model.rules("r1", 4, inverse=True)
    for rule in rules:
        body = tuple(int(atom.relation[1]) + 2 * atom.inverse for atom in rule.body)
        turned = tuple(inverted(op, 2) for op in reversed(body))
        assert rule.weight == pytest.approx(float(body_weights(model, 3, [turned])[0]))
        assert rule.support == len(holds(body) & holds((1,)))


def test_any_dag():
    model = RuleModel(GRAPH, dag=Dag.complete(2), rank=2)
    assert all(len(rule.body) <= 2 for rule in model.rules("r0", 5))


def test_errors():
    model = RuleModel(GRAPH, steps=1)
    with pytest.raises(ValueError, match="sort must be one of"):
        model.rules("r0", sort="beauty")
    with pytest.raises(ValueError, match="k must be a positive integer"):
        model.rules("r0", 0)
