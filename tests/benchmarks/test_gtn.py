"""GTN by propagation is GTN by its products of dense matrices."""

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("torch_geometric")

from benchmarks.reproduce.gtn import Gtn
from benchmarks.reproduce.methods import METHODS
from benchmarks.reproduce.settings import GTN_COMMANDS
from tensus_tn.data import Dataset, NodeLabels, Relation
from tensus_tn.tasks import make_task


def small_data():
    """Nine nodes of two types, one of them without edges, and both directions of one relation."""
    edges = torch.tensor([[0, 0, 1, 2, 3], [5, 6, 6, 7, 7]])
    relations = {
        "BA": Relation("a", "b", edges),
        "AB": Relation("b", "a", edges.flip(0)),
        "AA": Relation("a", "a", torch.tensor([[0, 1, 2], [1, 2, 2]])),
    }
    labels = torch.tensor([0, 1, 0, 1, 0, -1, -1, -1, -1])
    nodes = {"train": torch.tensor([0, 1]), "val": torch.tensor([2]), "test": torch.tensor([3, 4])}
    features = {"a": torch.randn(5, 3), "b": torch.randn(4, 3).to_sparse()}
    return Dataset(
        "small", {"a": 5, "b": 4}, relations, NodeLabels("a", labels, nodes, 2), features
    )


def dense_scores(model, data):
    """GTN's own way: N x N products of soft matrices, normalised after the product."""
    matrices = [torch.from_numpy(a.toarray()) for a in data.graph("none").to_scipy().values()][:-1]
    x = torch.cat([part.to_dense() for part in data.inputs().values()]) @ model.project.weight.T
    eye, states = torch.eye(len(x)), []
    for channel in model.channels:
        dense = channel.tensor.to_dense()
        total = torch.zeros_like(eye)
        for index in torch.cartesian_prod(*[torch.arange(len(matrices))] * dense.ndim).tolist():
            one = eye
            for choice in index:
                one = matrices[choice] @ one
            total = total + dense[tuple(index)] * one
        gcn = total / total.sum(1, keepdim=True) * (1 - eye) + eye
        states.append(F.relu(gcn / gcn.sum(1, keepdim=True) @ x + model.bias))
    return model.classifier(torch.cat(states, 1))[:5]


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("steps", [2, 3])
def test_propagation_gives_the_scores_and_gradients_of_dense_products(steps, rank):
    torch.manual_seed(0)
    data = small_data()
    model = Gtn(data, steps, rank, hidden=4)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape))
    given, expected = model(data.inputs()), dense_scores(model, data)
    torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-5)
    weights = torch.randn(expected.shape)
    parameters = list(model.parameters())
    grads = [torch.autograd.grad((y * weights).sum(), parameters) for y in (given, expected)]
    for mine, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)


def test_all_relations_and_the_identity_are_choices_of_every_step():
    model = Gtn(small_data(), 2, hidden=4)
    assert len(model.channels) == 2
    for channel in model.channels:
        assert channel.tensor.shape == (4, 4)
        assert "zero" not in channel.tensor.choice_names[(0, 1)]


def test_it_is_trained_by_the_commands_of_its_authors(monkeypatch):
    monkeypatch.setitem(GTN_COMMANDS, "small", (1, 3))
    outcome = METHODS["gtn-tensus"]("small", make_task(small_data()), 0)
    assert outcome["settings"]["lr"] == 0.02
    assert outcome["core_parameters"] == 2 * 2 * 4 * 2  # channels, steps, choices, rank
    assert len(outcome["curve"]) == 3  # all epochs, no early stop
