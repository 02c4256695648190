"""Rules: sorted, counted and named."""

import pytest

from tensus_tn import Dag
from tensus_tn.rules import Atom, RuleModel
from tensus_tn.rules.bodies import body_weights, inverted
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
