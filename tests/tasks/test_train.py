"""The training loop: its steps, what it keeps, and the same bits for the same seed."""

import io
import math
import re
import sys
import time

import pytest
import torch
from torch import nn

from tensus_tn.tasks import (
    Trainer,
    build_model,
    fit,
    make_task,
)
from tests.tasks.problems import SMALL, Constant, assert_same_state, small_links, train


def test_the_same_seed_gives_the_same_bits_and_another_one_does_not(task):
    one, two = train(SMALL, task), train(SMALL, task)
    assert one.history == two.history
    assert_same_state(one.model.state_dict(), two.model.state_dict())
    assert train(SMALL.with_values({"seed": 1}), task).history != one.history


def test_every_core_learns_in_every_mode(task):
    for updates in ("joint", "alternating"):
        config = SMALL.with_values({"updates": updates, "select": "last"})
        torch.manual_seed(0)
        before = [p.clone() for p in build_model(config, task.spec).arch_parameters()]
        trainer = train(config, task)
        for old, new in zip(before, trainer.model.arch_parameters(), strict=True):
            assert (old != new).any()


def test_alternating_updates_follow_the_validation_loss(task):
    """With a frozen network, the cores' gradient is that of the validation loss."""
    config = SMALL.with_values(
        {"updates": "alternating", "lr": 0.0, "weight_decay": 0.0, "dropout": 0.0, "epochs": 1,
         "select": "last"}
    )  # fmt: skip
    torch.manual_seed(0)
    model = build_model(config, task.spec)
    loss = task.loss(task.outputs(model, ["val"])["val"], "val")
    gradients = torch.autograd.grad(loss, model.arch_parameters())
    before = [p.detach().clone() for p in model.arch_parameters()]
    Trainer(model, task, config).run()
    for old, new, gradient in zip(before, model.arch_parameters(), gradients, strict=True):
        large = gradient.abs() > 1e-5  # Adam's first step has the size of its learning rate
        moved = (new - old).detach()
        assert torch.allclose(moved[large], -config.core_lr * gradient[large].sign(), rtol=1e-2)


def test_early_stopping_keeps_the_best_epoch(task):
    config = SMALL.with_values({"epochs": 200, "patience": 5, "lr": 0.3})
    trainer = train(config, task)
    losses = [record["val_loss"] for record in trainer.history]
    assert trainer.epoch == trainer.best_epoch + 5 < 200
    assert losses[trainer.best_epoch - 1] == min(losses)
    assert trainer.evaluate("val")["loss"] == pytest.approx(min(losses), abs=1e-6)
    last = train(config.with_values({"select": "last", "epochs": 8}), task)
    assert (last.best_epoch, last.epoch) == (8, 8)


def test_a_loss_that_is_not_finite_stops_the_run(task):
    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.tensor(math.nan))

        def forward(self, x, graph):
            return self.weight.expand(60, 2)

    with pytest.raises(ValueError, match=r"loss is nan in epoch 1"):
        fit(Broken(), task, SMALL)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("progress", [True, False])
def test_the_progress_bar_shows_loss_and_metric(task, monkeypatch, progress):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    trainer = Trainer(Constant(), task, SMALL.with_values({"progress": progress, "epochs": 2}))
    trainer.run(callback=lambda record: time.sleep(0.15))  # a bar is drawn ten times a second
    shown = re.search(r"planted seed 0: .* 1/2 .*loss=0\.\d+, macro_f1=0\.\d+", terminal.getvalue())
    assert bool(shown) == progress
    assert progress or not terminal.getvalue()


def test_an_equal_loss_is_no_improvement(task):
    frozen = SMALL.with_values({"lr": 0.0, "core_lr": 0.0, "patience": 3, "epochs": 50})
    result = fit(Constant(), task, frozen)
    assert (result.best_epoch, result.epochs) == (1, 4)


class Recorder(Constant):
    """Notes the epsilons of its draws, and the draw and the parameters of every call."""

    def __init__(self):
        super().__init__()
        self.epsilons, self.calls = [], []

    def sample(self, *, epsilon, generator=None):
        if generator is None:
            self.epsilons.append(epsilon)
        return object()

    def forward(self, x, graph, draw):
        self.calls.append((draw, self.weight.detach().clone(), self.core.detach().clone()))
        return super().forward(x, graph)


def test_a_sampled_search_has_the_steps_of_the_protocol(task):
    """One draw an epoch, a step of the weights, then one of the cores; epsilon decays."""
    settings = {"search": "sampled", "updates": "alternating", "epsilon": 0.5, "epochs": 3}
    trainer = Trainer(model := Recorder(), task, SMALL.with_values(settings))
    trainer.run()
    assert model.epsilons == pytest.approx([0.5, 0.45, 0.405])
    assert len(model.calls) == 3 * 3
    for k in range(0, 9, 3):
        (draw, weight, core), (again, weight_2, core_2), (best, weight_3, core_3) = model.calls[
            k : k + 3
        ]
        assert draw is again is not best
        assert (weight != weight_2).any()
        assert torch.equal(core, core_2)
        assert torch.equal(weight_2, weight_3)
        assert (core_2 != core_3).any()


def test_weights_decay_and_cores_do_not(task):
    config = SMALL.with_values({"weight_decay": 10.0, "epochs": 30, "select": "last"})
    ends = {}
    for decay in (0.0, 10.0):
        model = Constant()
        with torch.no_grad():
            model.weight.fill_(3.0)
            model.core.fill_(
                3.0
            )  # both are the same for all classes: the loss leaves the sum alone
        fit(model, task, config.with_values({"weight_decay": decay}))
        ends[decay] = model.weight.mean().item(), model.core.mean().item()
    assert ends[0.0] == pytest.approx((3.0, 3.0), abs=1e-3)
    assert ends[10.0][0] < 2.7
    assert ends[10.0][1] == pytest.approx(3.0, abs=1e-3)


def test_training_leaves_torchs_settings_as_they_were(task):
    before = torch.get_deterministic_debug_mode()
    try:
        for mode in (0, 1, 2):
            torch.set_deterministic_debug_mode(mode)
            fit(Constant(), task, SMALL.with_values({"epochs": 1}))
            assert torch.get_deterministic_debug_mode() == mode
    finally:
        torch.set_deterministic_debug_mode(before)


@pytest.mark.parametrize("updates", ["joint", "alternating"])
@pytest.mark.parametrize("kind", ["nodes", "pairs"])
def test_one_block_of_all_neighbours_is_the_full_batch(task, kind, updates):
    """The same loss and, up to rounding, the same steps: dropout aside, the order of seeds is all."""
    task = task if kind == "nodes" else make_task(small_links())
    config = SMALL.with_values({"dropout": 0.0, "epochs": 3, "updates": updates, "bias": True})
    whole = history(config, task)
    batch = history(config.with_values({"batch_size": task.size("train")}), task)
    assert batch[0]["train_loss"] == pytest.approx(whole[0]["train_loss"], abs=1e-6)
    for a, b in zip(whole, batch, strict=True):
        assert a.keys() == b.keys()
        assert all(b[key] == pytest.approx(a[key], rel=1e-4) for key in a)


def history(config, task):
    torch.manual_seed(config.seed)
    return Trainer(build_model(config, task.spec), task, config).run()


@pytest.mark.parametrize(
    ("kind", "search", "updates"),
    [
        ("nodes", "soft", "joint"),
        ("nodes", "sampled", "joint"),
        ("nodes", "soft", "alternating"),
        ("pairs", "soft", "joint"),
        ("pairs", "sampled", "alternating"),
    ],
)
def test_batches_learn_and_resume_to_the_same_bits(task, tmp_path, kind, search, updates):
    task = task if kind == "nodes" else make_task(small_links())
    config = SMALL.with_values(
        {"batch_size": 20, "fan_out": "4", "search": search, "updates": updates, "epochs": 4}
    )
    whole = history(config, task)
    assert search == "sampled" or whole[-1]["train_loss"] < whole[0]["train_loss"]
    assert history(config, task) == whole
    half = config.with_values({"epochs": 2})
    torch.manual_seed(config.seed)
    trainer = Trainer(build_model(half, task.spec), task, half)
    trainer.run(tmp_path / "checkpoint.pt")
    again = Trainer(build_model(config, task.spec), task, config)
    again.resume(tmp_path / "checkpoint.pt")
    assert again.run() == whole


def test_in_turns_every_block_moves_weights_then_cores(task):
    """Of 30 training nodes there are three blocks, of 15 validation nodes two, the first once more."""
    settings = {"search": "sampled", "updates": "alternating", "batch_size": 10, "epochs": 1}
    trainer = Trainer(model := Recorder(), task, SMALL.with_values(settings))
    sizes, losses = [], trainer._block_loss

    def record(split, size, block, draw):
        sizes.append((split, size, len(block.rows)))
        return losses(split, size, block, draw)

    trainer._block_loss = record
    trainer.step()
    rounds = [("train", 10, 10), ("val", 10, 10), ("train", 10, 10), ("val", 5, 5)]
    assert sizes == [*rounds, *rounds[:2]]
    for k in range(0, 4, 2):
        (draw, weight, core), (again, weight_2, core_2), (_, weight_3, core_3) = model.calls[
            k : k + 3
        ]
        assert draw is again
        assert (weight != weight_2).any()
        assert torch.equal(core, core_2)
        assert torch.equal(weight_2, weight_3)
        assert (core_2 != core_3).any()
