"""Networks in the towers' place: the same inputs and bias, and the score that their name says."""

import pytest
import torch

pytest.importorskip("torch_geometric")

from benchmarks.reproduce.pairs import LAYERS, LIGHTGCN_LAYERS, LightGCN, PairPeer
from tensus_tn.tasks import PAIRS, Config, Trainer, make_task
from tests.tasks.problems import small_links


def task():
    return make_task(small_links())


def test_lightgcn_is_the_mean_of_powers_of_the_normalised_edges():
    problem = task()
    g = torch.Generator().manual_seed(0)
    parts = {kind: torch.randn(n, 3, generator=g) for kind, n in (("user", 30), ("item", 20))}
    a = torch.zeros(50, 50)
    first, second = problem.known
    a[first, second + 30] = a[second + 30, first] = 1.0
    scale = a.sum(1).clamp_min(1) ** -0.5
    step = scale[:, None] * a * scale
    x = torch.cat(list(parts.values()))
    powers = [torch.linalg.matrix_power(step, k) @ x for k in range(LIGHTGCN_LAYERS + 1)]
    out = LightGCN(problem.data)(parts)
    torch.testing.assert_close(torch.cat(list(out.values())), sum(powers) / len(powers))


@pytest.mark.parametrize("degrees", [True, False])
def test_without_layers_the_score_is_the_bias(degrees):
    problem = task()
    model = PairPeer(problem, None, degrees=degrees)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    pairs = problem.pairs["val"]
    users, items, constant = (*model.bias.nodes, model.bias.constant)
    expected = users[pairs[0]] + items[pairs[1]] + constant
    if degrees:
        for end, kind in enumerate(("user", "item")):
            z = problem.x[kind].degree @ model.bias.weights[end]
            expected = expected + z[pairs[end]]
    torch.testing.assert_close(model(problem.x, problem.graph, pairs), expected)
    assert len(model.bias_parameters()) == len(list(model.parameters()))


@pytest.mark.parametrize("name", LAYERS)
def test_networks_add_a_dot_product_and_learn_what_the_bias_can_not(name):
    problem = task()
    torch.manual_seed(0)
    config = Config(**{**PAIRS, "hidden": 8, "dropout": 0.0, "epochs": 60, "progress": False})
    model = PairPeer(problem, LAYERS[name](problem.data, 8), 8, 0.0)
    pairs = problem.pairs["val"]
    states = model.layers(dict(zip(problem.x, model.project(problem.x), strict=True)))
    dots = (states["user"][pairs[0]] * states["item"][pairs[1]]).sum(1)
    expected = dots + model.bias_scores(problem.x, pairs)
    torch.testing.assert_close(model(problem.x, problem.graph, pairs), expected)
    trainer = Trainer(model, problem, config)
    trainer.run()
    assert trainer.evaluate("test")["auc"] > 0.95  # parity is likeness: a bias has 0.5
    alone = problem.scores(model.bias_scores(problem.x, problem.pairs["test"]), "test")
    assert alone["auc"] < 0.7


def test_the_bias_has_a_learning_rate_of_its_own():
    problem = task()
    model = PairPeer(problem, None)
    trainer = Trainer(model, problem, Config(**PAIRS, bias_lr=0.07))
    (group,) = trainer.weight_optimizer.param_groups
    assert group["lr"] == 0.07
    assert len(group["params"]) == 5
