"""MAGNN: instances are drawn evenly, and attention is what its formula says."""

import pytest
import torch
import torch.nn.functional as F

from benchmarks.reproduce.magnn import Magnn, draw_instances
from tensus_tn.data import Dataset, NodeLabels, Relation


def data():
    """Authors 0, 1, 2 (who wrote nothing) and papers 3, 4, 5; paper 3 has two authors."""
    wrote = torch.tensor([[0, 0, 1, 0], [3, 4, 3, 5]])
    relations = {
        "PA": Relation("author", "paper", wrote),
        "AP": Relation("paper", "author", wrote.flip(0)),
    }
    labels = torch.tensor([0, 1, 0, -1, -1, -1])
    nodes = {split: torch.tensor([k]) for k, split in enumerate(("train", "val", "test"))}
    target = NodeLabels("author", labels, nodes, 2)
    return Dataset("wrote", {"author": 3, "paper": 3}, relations, target)


def test_all_instances_of_a_node_are_equally_likely():
    instances = draw_instances(data(), ["PA", "AP"], 4000)
    assert instances.shape == (3, 4000, 3)
    found, counts = instances[0].unique(dim=0, return_counts=True)
    assert found.tolist() == [[0, 3, 0], [0, 3, 1], [0, 4, 0], [0, 5, 0]]
    assert counts.min() > 800  # by walks, half as many would go over paper 3 to either author
    assert instances[1].unique(dim=0).tolist() == [[1, 3, 0], [1, 3, 1]]
    assert instances[2].unique(dim=0).tolist() == [[2, 2, 2]]  # a node without any stands alone


def test_attention_over_instances_and_over_paths():
    graph = data()
    model = Magnn(graph, [["PA", "AP"], ["PA", "AP", "PA", "AP"]], 4)
    parts = {"author": torch.randn(3, 4), "paper": torch.randn(3, 4)}
    h, along = torch.cat(list(parts.values())), []
    for instances, vectors in zip(model.instances, model.attention, strict=True):
        states = []
        for v in range(3):
            means = torch.stack([h[p].mean(0) for p in instances[v]])
            heads = []
            for own, other in vectors:
                scores = [F.leaky_relu(own @ h[v] + other @ m, 0.2) for m in means]
                heads.append(F.elu(torch.stack(scores).softmax(0) @ means))
            states.append(torch.cat(heads))
        along.append(torch.stack(states))
    scores = [(torch.tanh(model.weigh(y)) @ model.query[0]).mean() for y in along]
    weights = torch.stack(scores).softmax(0)
    expected = F.elu(model.out(weights[0] * along[0] + weights[1] * along[1]))
    given = model(parts)
    assert list(given) == ["author"]
    torch.testing.assert_close(given["author"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", [0, 1])
def test_draws_follow_the_seed(seed):
    torch.manual_seed(seed)
    one = draw_instances(data(), ["PA", "AP"], 8)
    torch.manual_seed(seed)
    assert torch.equal(one, draw_instances(data(), ["PA", "AP"], 8))
