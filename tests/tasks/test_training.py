import io
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from tensus_tn.data import Dataset, NodePairs, Relation, load, planted
from tensus_tn.tasks import (
    METHODS,
    Config,
    Result,
    Trainer,
    best_meta_graphs,
    build_model,
    compare,
    equal_rank,
    fit,
    make_task,
    preset,
    restore,
    run,
)
from tensus_tn.tasks.checkpoint import load_checkpoint, save_checkpoint, write_atomically

DATA = Path(os.environ.get("TENSUS_DATA", "data"))
SMALL = Config().with_values({**preset("planted"), "progress": False, "epochs": 6, "dropout": 0.3})


@pytest.fixture(scope="module")
def task():
    return make_task(planted(num_nodes=60), "row")


def small_links(num_users=30, num_items=20):
    """Users like items of their own parity; they know others of it."""
    random = torch.Generator().manual_seed(0)
    pairs = torch.cartesian_prod(torch.arange(num_users), torch.arange(num_items) + num_users)
    pairs = pairs[torch.randperm(len(pairs), generator=random)]
    alike = (pairs[:, 0] % 2) == (pairs[:, 1] % 2)
    liked, other = pairs[alike], pairs[~alike]
    edges = liked[:100].T
    relations = {
        "UI": Relation("item", "user", edges.flip(0)),
        "IU": Relation("user", "item", edges),
    }
    splits = [
        dict(zip(("train", "val", "test"), side[100:250].split([90, 30, 30]), strict=True))
        for side in (liked, other)
    ]
    target = NodePairs("user", "item", *splits)
    return Dataset("links", {"user": num_users, "item": num_items}, relations, target)


def train(config, task):
    torch.manual_seed(config.seed)
    trainer = Trainer(build_model(config, task.spec), task, config)
    trainer.run()
    return trainer


def assert_same_state(one, two):
    assert list(one) == list(two)
    for key, value in one.items():
        assert torch.equal(value, two[key]), key


def test_planted_meta_graph_is_recovered_at_rank_two_and_rank_one_stays_at_its_bound():
    task = make_task(planted(num_nodes=1500), "row")
    config = Config().with_values({**preset("planted"), "progress": False, "epochs": 100})
    scores = {}
    for rank in (1, 2):
        trainer = train(config.with_values({"rank": rank}), task)
        scores[rank] = trainer.evaluate("test")["micro_f1"]
    assert scores[1] < 0.75 + 0.06  # the bound, and what 375 test nodes allow
    assert scores[2] > 0.95
    tensor = trainer.model.convs[0].tensor
    best = tensor.top_k(2)
    names = [tensor.choice_names[edge] for edge in tensor.dag.edges]
    found = {tuple(n[i] for n, i in zip(names, row, strict=True)) for row in best.index.tolist()}
    assert found == {("A", "B"), ("C", "D")}
    assert min(best.value) > 0.3


def test_links_are_learned():
    task = make_task(small_links(), "diffmg")
    config = SMALL.with_values({"topology": "complete", "select": "metric", "epochs": 60})
    trainer = train(config.with_values({"dropout": 0.0, "hidden": 8}), task)
    assert trainer.evaluate("test")["auc"] > 0.9
    best = max(record["val_auc"] for record in trainer.history)
    assert trainer.evaluate("val")["auc"] == best  # the best state is back in the model


def test_loss_of_links_is_that_of_the_protocol():
    task = make_task(small_links())
    scores = torch.randn(180)
    positive, negative = scores[:90].sigmoid(), (-scores[90:]).sigmoid()
    expected = -(positive.log() + negative.log()).mean()
    assert torch.allclose(task.loss(scores, "train"), expected)
    pairs = task.pairs["train"]
    assert ((pairs[0] % 2) == (pairs[1] % 2)).tolist() == [True] * 90 + [False] * 90


def test_tasks_refuse_data_of_the_other_kind(task):
    from tensus_tn.tasks import LinkPrediction, NodeClassification

    with pytest.raises(TypeError, match="needs pairs"):
        LinkPrediction(planted(num_nodes=8))
    with pytest.raises(TypeError, match="needs labels"):
        NodeClassification(small_links())


def test_a_target_that_no_relation_ends_in_is_refused():
    data = planted(num_nodes=8)
    relations = {name: data.relations[name] for name in "AC"}
    with pytest.raises(ValueError, match="no relation of 'planted' ends in 't'"):
        make_task(replace(data, relations=relations))


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


class Constant(nn.Module):
    """The same scores for every node; a model of a user's own."""

    def __init__(self):
        super().__init__()
        self.weight, self.core = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))

    def arch_parameters(self):
        return [self.core]

    def forward(self, x, graph):
        return (self.weight + self.core).expand(60, 2)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("progress", [True, False])
def test_the_progress_bar_shows_loss_and_metric(task, monkeypatch, progress):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    trainer = Trainer(Constant(), task, SMALL.with_values({"progress": progress, "epochs": 2}))
    trainer.run(on_epoch=lambda record: time.sleep(0.15))  # a bar is drawn ten times a second
    shown = re.search(r"planted seed 0: .* 1/2 .*loss=0\.\d+, macro_f1=0\.\d+", terminal.getvalue())
    assert bool(shown) == progress
    assert progress or not terminal.getvalue()


def test_an_equal_loss_is_no_improvement(task):
    frozen = SMALL.with_values({"lr": 0.0, "core_lr": 0.0, "patience": 3, "epochs": 50})
    result = fit(Constant(), task, frozen)
    assert (result.best_epoch, result.epochs) == (1, 4)


def test_any_model_can_be_fitted(task):
    result = fit(Constant(), task, SMALL)
    assert result.num_parameters == 4
    assert result.meta_graphs == []
    assert result.history[-1]["train_loss"] < result.history[0]["train_loss"]
    with pytest.raises(TypeError, match="needs a model with `sample`"):
        fit(Constant(), task, SMALL.with_values({"search": "sampled"}))


@pytest.mark.parametrize("updates", ["joint", "alternating"])
def test_resumed_equals_uninterrupted(tmp_path, task, updates):
    config = SMALL.with_values(
        {"updates": updates, "checkpoint_every": 1, "out": str(tmp_path / "a")}
    )
    whole = run(config, task)
    config = config.with_values({"out": str(tmp_path / "b"), "epochs": 3})
    run(config, task)
    torch.rand(7)  # the state of the generator is part of the checkpoint
    resumed = run(config.with_values({"epochs": 6, "resume": True}), task)
    assert resumed.history == whole.history
    assert (resumed.val, resumed.test) == (whole.val, whole.test)
    one, two = (load_checkpoint(tmp_path / name / "checkpoint.pt") for name in "ab")
    for key in ("model", "best_state"):
        assert_same_state(one[key], two[key])


_SCRIPT = """
import sys, torch
from tensus_tn.data import planted
from tensus_tn.tasks import Config, make_task, run
torch.set_num_threads(1)
config = Config().with_values(eval(sys.argv[1]))
run(config, make_task(planted(num_nodes=60), "row"))
"""


def start(config):
    command = [sys.executable, "-c", _SCRIPT, repr(config.to_dict())]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def wait_for(path, process):
    end = time.monotonic() + 60
    while not path.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    assert path.exists(), process.stderr.read()


def test_a_killed_run_resumes_to_the_same_bits(tmp_path, task):
    config = SMALL.with_values(
        {"epochs": 400, "checkpoint_every": 3, "out": str(tmp_path / "killed")}
    )
    process = start(config)
    wait_for(tmp_path / "killed" / "checkpoint.pt", process)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    done = len(load_checkpoint(tmp_path / "killed" / "checkpoint.pt")["history"])
    assert 0 < done < 400
    config = config.with_values({"epochs": done + 5})
    resumed = run(config.with_values({"resume": True}), task)
    whole = run(config.with_values({"out": ""}), task)
    assert resumed.history == whole.history
    assert resumed.test == whole.test


def test_the_checkpoint_of_another_run_is_not_resumed(tmp_path, task):
    config = SMALL.with_values({"out": str(tmp_path)})
    run(config, task)
    with pytest.raises(ValueError, match=r"another run: lr: 0.02 there, 0.5 here"):
        run(config.with_values({"resume": True, "lr": 0.5}), task)
    with pytest.raises(ValueError, match="another run: its data are"):
        run(config.with_values({"resume": True}), make_task(planted(num_nodes=64), "row"))
    chosen = best_meta_graphs(build_model(config, task.spec), 1)
    with pytest.raises(ValueError, match="another run: another chosen"):
        fit(
            build_model(config, task.spec, chosen),
            task,
            config.with_values({"resume": True}),
            chosen,
        )


def test_restore_gives_the_best_state(tmp_path, task):
    config = SMALL.with_values({"out": str(tmp_path)})
    result = run(config, task)
    restored, model = restore(tmp_path)
    assert restored == config
    assert Trainer(model, task, config).evaluate("test") == result.test
    saved = json.loads((tmp_path / "result.json").read_text())
    assert saved["test"] == result.test
    assert len(saved["history"]) == 6
    lines = (tmp_path / "history.csv").read_text().splitlines()
    assert lines[0] == "epoch,train_loss,val_loss,val_macro_f1,val_micro_f1"
    assert len(lines) == 7


@pytest.mark.parametrize("make", [lambda: planted(num_nodes=60), small_links])
@pytest.mark.parametrize("top", [1, 2])
def test_the_best_meta_graphs_of_a_search_are_trained_alone(tmp_path, make, top):
    task = make_task(make())
    search = run(SMALL.with_values({"out": str(tmp_path)}), task)
    wanted = best_meta_graphs(restore(tmp_path)[1], top)
    config = SMALL.with_values(
        {"meta_graph": str(tmp_path), "top": top, "out": str(tmp_path / "derived")}
    )
    result = run(config, task)
    _, model = restore(tmp_path / "derived")
    for kept, best in zip(best_meta_graphs(model, top), wanted, strict=True):
        assert [m.relations for m in kept] == [m.relations for m in best]
    assert result.meta_graphs[0]["links"][0][:3] == search.meta_graphs[0]["links"][0][:3]
    assert Trainer(model, task, config).evaluate("test") == result.test
    assert len(model.arch_parameters()) == (0 if top == 1 else len(task.spec["targets"]))


def test_meta_graphs_for_the_wrong_number_of_networks_are_refused(task):
    pairs = make_task(small_links())
    chosen = best_meta_graphs(build_model(SMALL, task.spec), 1)
    with pytest.raises(ValueError, match="meta-graphs of 1 networks, but 2 are to be trained"):
        build_model(SMALL, pairs.spec, chosen)


@pytest.mark.parametrize("search", ["sampled", "gumbel"])
@pytest.mark.parametrize("make", [lambda: planted(num_nodes=60), small_links])
def test_sampled_search_learns_and_resumes(tmp_path, search, make):
    task = make_task(make())
    config = SMALL.with_values(
        {**preset("planted", "search"), "search": search, "epsilon": 0.5, "epochs": 20,
         "core_lr": 0.05, "out": str(tmp_path / "whole")}
    )  # fmt: skip
    whole = run(config, task)
    _, model = restore(tmp_path / "whole")
    torch.manual_seed(config.seed)
    fresh = build_model(config, task.spec)
    for old, new in zip(fresh.arch_parameters(), model.arch_parameters(), strict=True):
        assert (old != new).any()
    assert Trainer(model, task, config).evaluate("test") == whole.test
    halves = config.with_values({"out": str(tmp_path / "halves")})
    run(halves.with_values({"epochs": 7}), task)
    assert run(halves.with_values({"resume": True}), task).history == whole.history


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


def test_the_network_is_that_of_the_settings(task):
    changes = {"norm": "none", "input_activation": "tanh", "dropout": 0.25, "hidden": 4}
    settings = {**changes, "topology": "complete", "steps": 3, "rank": 3, "ties": "global"}
    net = build_model(SMALL.with_values({**settings, "init_scale": 0.0}), task.spec)
    (conv,) = net.layers
    assert not any(core.any() for core in net.arch_parameters())
    assert conv.norm is None
    assert net.input_activation is torch.tanh
    assert (conv.dropout, conv.out_channels) == (0.25, 4)
    assert len(conv.tensor.dag.edges) == 6
    assert conv.tensor.structure.ranks == (3,)
    plain, affine = (
        build_model(SMALL.with_values({"norm": norm}), task.spec).layers[0].norm
        for norm in ("plain", "affine")
    )
    assert len(list(plain.parameters())) == 0
    assert len(list(affine.parameters())) == 2


class Malicious:
    """Makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_bad_checkpoints_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        load_checkpoint(tmp_path / "none.pt")
    save_checkpoint(tmp_path / "whole.pt", {"value": torch.zeros(1000)})
    whole = (tmp_path / "whole.pt").read_bytes()
    for damaged in (b"", b"text", b"0", whole[:100], whole[: len(whole) // 2]):
        (tmp_path / "damaged.pt").write_bytes(damaged)
        with pytest.raises(ValueError, match=r"damaged\.pt is not a checkpoint, or is damaged$"):
            load_checkpoint(tmp_path / "damaged.pt")
    with pytest.raises(OSError, match=re.escape(str(tmp_path))):
        load_checkpoint(tmp_path)
    torch.save({"model": 1}, tmp_path / "other.pt")
    with pytest.raises(ValueError, match="not a checkpoint of format"):
        load_checkpoint(tmp_path / "other.pt")
    torch.save({"model": Malicious(tmp_path / "made")}, tmp_path / "object.pt")
    with pytest.raises(ValueError, match="not a checkpoint"):
        load_checkpoint(tmp_path / "object.pt")
    assert not (tmp_path / "made").exists()


def test_a_checkpoint_of_another_model_is_not_restored(tmp_path, task):
    config = SMALL.with_values({"out": str(tmp_path), "epochs": 1})
    fit(Constant(), task, config)
    with pytest.raises(ValueError, match="of a model that is not ours: Error") as error:
        restore(tmp_path)
    assert "\n" not in str(error.value)
    Trainer(Constant(), task, config).run(tmp_path / "bare.pt")
    with pytest.raises(ValueError, match="of a model that is not ours: 'chosen'"):
        restore(tmp_path / "bare.pt")


def test_a_folder_that_can_not_be_made_is_refused_before_any_work(tmp_path, task):
    class Unused(Constant):
        def forward(self, x, graph):
            raise AssertionError("the model was called")

    (tmp_path / "file").write_text("")
    for out in ("file", "file/runs", "file/runs/mine"):
        with pytest.raises(
            NotADirectoryError, match=rf"make the folder .*{out}: .*/file is a file"
        ):
            fit(Unused(), task, SMALL.with_values({"out": str(tmp_path / out)}))


def test_training_leaves_torchs_settings_as_they_were(task):
    before = torch.get_deterministic_debug_mode()
    try:
        for mode in (0, 1, 2):
            torch.set_deterministic_debug_mode(mode)
            fit(Constant(), task, SMALL.with_values({"epochs": 1}))
            assert torch.get_deterministic_debug_mode() == mode
    finally:
        torch.set_deterministic_debug_mode(before)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    save_checkpoint(tmp_path / "file", {"value": 1})

    def broken(file):
        file.write(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(tmp_path / "file", broken)
    assert load_checkpoint(tmp_path / "file")["value"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_compare_runs_every_method_and_seed(tmp_path, task):
    config = SMALL.with_values({"epochs": 2, "out": str(tmp_path)})
    seen = []
    results = compare(config, task, [0, 1], METHODS, lambda name, result: seen.append(name))
    assert seen == ["tensus", "cp", "diffmg", "gtn"] * 2
    assert [r.config["seed"] for r in results["gtn"]] == [0, 1]
    assert results["cp"][0].config["ties"] == "global"
    assert results["gtn"][0].config["rank"] == 1
    assert results["tensus"][0].config["rank"] == 2
    lines = (tmp_path / "compare.csv").read_text().splitlines()
    assert len(lines) == 9
    rows = json.loads((tmp_path / "compare.json").read_text())
    assert rows[0]["test_macro_f1"] == results["tensus"][0].test["macro_f1"]
    assert isinstance(results["cp"][0], Result)


def test_diffmg_searches_over_the_network_that_it_trains(tmp_path, task):
    """By DiffMG's settings of the search, whatever those of the training are."""
    changes = {"steps": 3, "hidden": 4, "weight_decay": 0.1, "input_activation": "tanh"}
    config = SMALL.with_values({**changes, "epochs": 1, "out": str(tmp_path)})
    METHODS["diffmg"](config, task)
    searched, _ = restore(tmp_path / "search")
    assert (searched.steps, searched.hidden) == (3, 4)
    assert (searched.weight_decay, searched.input_activation) == (0.001, "none")


def test_cp_has_about_as_many_parameters(task):
    config = SMALL.with_values({"topology": "complete", "steps": 4, "rank": 3})
    rank = equal_rank(config, task)

    def size(settings):
        return sum(p.numel() for p in build_model(settings, task.spec).arch_parameters())

    wanted = size(config)
    cp = config.with_values({"ties": "global"})
    sizes = {d: size(cp.with_values({"rank": d})) for d in range(1, 12)}
    assert abs(sizes[rank] - wanted) == min(abs(value - wanted) for value in sizes.values())


def test_tensorboard_needs_a_folder(task):
    with pytest.raises(ValueError, match="set `out`"):
        run(SMALL.with_values({"tensorboard": True}), task)


def test_tensorboard_logs(tmp_path, task):
    pytest.importorskip("tensorboard")
    run(SMALL.with_values({"tensorboard": True, "out": str(tmp_path)}), task)
    assert list(tmp_path.glob("events.out.tfevents*"))


def test_two_epochs_on_dblp():
    file = DATA / "gtn_dblp.npz"
    if not file.exists():
        pytest.skip(f"gtn_dblp.npz is not in {DATA}: set TENSUS_DATA")
    config = Config().with_values({**preset("dblp"), "epochs": 2, "progress": False})
    task = make_task(load(file), config.normalisation)
    trainer = train(config, task)
    assert trainer.history[1]["train_loss"] < trainer.history[0]["train_loss"]
    assert trainer.evaluate("test")["macro_f1"] > 0.3
    best = best_meta_graphs(trainer.model, 1)[0][0]
    assert best.relations[3, 4] in ("AP", "identity")
