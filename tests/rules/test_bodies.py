"""Bodies of rules: their weights against the tensor, their counts against loops over pairs."""

from itertools import product

import pytest
import torch

from tensus_tn.rules import RuleModel
from tensus_tn.rules.bodies import Counter, body_weights
from tests.rules.test_mining import GRAPH, holds


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
