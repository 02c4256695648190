"""An explanation adds up to the score, and its walks are walks."""

from itertools import pairwise

import pytest
import torch

from tensus_tn.rules import RuleModel
from tests.rules.graphs import random_graph


@pytest.mark.parametrize("steps", [1, 3])
def test_parts_add_up_to_the_score(steps):
    graph = random_graph(8, 2, 18)
    model = RuleModel(graph, steps=steps, rank=2, dtype=torch.float64)
    with torch.no_grad():
        model.popularity.normal_()
    edges = {(h, t) for h, _, t in graph.train.tolist()} | {
        (t, h) for h, _, t in graph.train.tolist()
    }
    scores = model.scores([("r1", "e2")])[0]
    for answer in range(graph.num_entities):
        why = model.explain("r1", "e2", answer, k=10_000)
        assert why.complete
        assert why.score == pytest.approx(float(scores[answer]))
        assert why.rest == pytest.approx(0, abs=1e-9)
        for part in why.parts:
            way = [graph.entity(name) for name in part.example]
            assert (way[0], way[-1]) == (2, answer)
            assert len(way) == len(part.body) + 1
            assert all(pair in edges for pair in pairwise(way))


def test_few_parts_and_their_text():
    graph = random_graph(8, 2, 18)
    why = RuleModel(graph, steps=2).explain("r0", "e0", "e1", 1)
    assert len(why.parts) <= 1
    text = str(why)
    assert text.startswith("r0(e0, e1)  score ")
    assert "popularity of e1" in text
    with pytest.raises(ValueError, match="no entity 'nobody'"):
        RuleModel(graph, steps=1).explain("r0", "e0", "nobody")
