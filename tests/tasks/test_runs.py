"""Runs: what they learn, and how they go on after a kill."""

import copy
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tensus_tn._checkpoint import load_checkpoint, save_checkpoint
from tensus_tn._run_folder import RESULT
from tensus_tn.data import load, planted
from tensus_tn.tasks import (
    PAIRS,
    Config,
    Trainer,
    best_meta_graphs,
    build_model,
    fit,
    make_task,
    preset,
    restore,
    run,
)
from tests.tasks.problems import SMALL, Constant, assert_same_state, small_links, train

DATA = Path(os.environ.get("TENSUS_DATA", "data"))


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
    task = make_task(small_links(), inputs=["features"])
    config = SMALL.with_values({"topology": "complete", "select": "metric", "epochs": 60})
    trainer = train(config.with_values({"dropout": 0.0, "hidden": 8}), task)
    assert trainer.evaluate("test")["auc"] > 0.9
    best = max(record["val_auc"] for record in trainer.history)
    assert trainer.evaluate("val")["auc"] == best  # the best state is back in the model


def test_pairs_are_learned_by_their_recipe_and_restored(tmp_path):
    task = make_task(small_links())
    settings = {**PAIRS, "epochs": 60, "hidden": 8, "progress": False, "out": str(tmp_path)}
    result = run(Config(**settings), task)
    assert result.test["auc"] > 0.9
    config, model = restore(tmp_path)
    assert Trainer(model, task, config).evaluate("test") == result.test


def test_biases_learn_at_a_rate_of_their_own():
    task = make_task(small_links())
    settings = {**PAIRS, "epochs": 1, "hidden": 8, "progress": False, "lr": 0.0, "core_lr": 0.0}
    before = build_model(Config(**settings, seed=1), task.spec)
    trainer = Trainer(copy.deepcopy(before), task, Config(**settings))
    trainer.step()
    old, new = dict(before.named_parameters()), dict(trainer.model.named_parameters())
    moved = {name for name in old if not torch.equal(old[name], new[name])}
    assert moved == {name for name in old if name.startswith("bias.")}


def test_any_model_can_be_fitted(task):
    result = fit(Constant(), task, SMALL)
    assert result.num_parameters == 4
    assert result.meta_graphs == []
    assert result.history[-1]["train_loss"] < result.history[0]["train_loss"]
    with pytest.raises(TypeError, match="needs a model with `sample`"):
        fit(Constant(), task, SMALL.with_values({"search": "sampled"}))


def test_batches_of_a_model_with_a_bias_need_its_likeness(task):
    model = Constant()
    model.bias_scores = lambda x, pairs: 0
    with pytest.raises(TypeError, match="batches need a model with `likeness` beside its bias"):
        fit(model, task, SMALL.with_values({"batch_size": 8}))


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


def test_a_run_is_not_overwritten_unless_that_is_asked_for(tmp_path, task):
    config = SMALL.with_values({"out": str(tmp_path), "epochs": 2})
    run(config, task)
    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    other = config.with_values({"seed": 1})
    with pytest.raises(FileExistsError, match=r"holds a run already \(checkpoint.*--overwrite"):
        run(other, task)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == files
    run(other.with_values({"overwrite": True}), task)
    assert (tmp_path / RESULT).read_bytes() != files[tmp_path / RESULT]
    run(other.with_values({"resume": True, "epochs": 3}), task)
    with pytest.raises(ValueError, match="either resumed or overwritten"):
        other.with_values({"resume": True, "overwrite": True})


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
    end = time.monotonic() + 600
    while not path.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    assert path.exists(), process.stderr.read()


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_bits(tmp_path, task):
    config = SMALL.with_values(
        {"epochs": 100_000, "checkpoint_every": 3, "out": str(tmp_path / "killed")}
    )
    process = start(config)
    wait_for(tmp_path / "killed" / "checkpoint.pt", process)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    done = len(load_checkpoint(tmp_path / "killed" / "checkpoint.pt")["history"])
    assert 0 < done < 100_000
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
    task = make_task(load(file), config.normalisation, even=config.even)
    trainer = train(config, task)
    assert trainer.history[1]["train_loss"] < trainer.history[0]["train_loss"]
    assert trainer.evaluate("test")["macro_f1"] > 0.3
    best = best_meta_graphs(trainer.model, 1)[0][0]
    assert best.relations[3, 4] in ("AP", "identity")


@pytest.mark.parametrize(
    "key", ["config", "data", "model", "weight_optimizer", "core_optimizer", "best_state", "rng"]
)
def test_a_checkpoint_that_lacks_something_is_refused_by_name(tmp_path, task, key):
    config = SMALL.with_values({"out": str(tmp_path), "epochs": 1})
    run(config, task)
    path, resumed = tmp_path / "checkpoint.pt", config.with_values({"resume": True, "epochs": 2})
    state = load_checkpoint(path)
    save_checkpoint(path, {name: value for name, value in state.items() if name != key})
    with pytest.raises(ValueError, match=rf"checkpoint\.pt is not a whole checkpoint: .*{key}"):
        run(resumed, task)
    if key in ("config", "best_state"):
        with pytest.raises(ValueError, match=rf"checkpoint\.pt is .*{key}"):
            restore(tmp_path)
    if key not in ("config", "data"):
        save_checkpoint(path, {**state, key: 3})
        with pytest.raises(ValueError, match=r"checkpoint\.pt does not fit its own settings"):
            run(resumed, task)


def test_more_than_the_memory_holds_is_refused_with_its_size(task):
    with pytest.raises(ValueError, match=r"state of 1,000,000,000 features .* bytes of memory"):
        run(SMALL.with_values({"hidden": 10**9}), task)


@pytest.mark.parametrize("targets", [[], ["a", "a", "a"]])
def test_a_checkpoint_of_too_few_or_too_many_networks_is_refused(tmp_path, task, targets):
    run(SMALL.with_values({"out": str(tmp_path)}), task)
    path = tmp_path / "checkpoint.pt"
    state = torch.load(path, weights_only=True)
    state["spec"]["targets"] = targets
    torch.save(state, path)
    with pytest.raises(ValueError, match="one target node type, or two for pairs, got"):
        restore(tmp_path)
    state["spec"]["targets"], state["chosen"] = task.spec["targets"], []
    torch.save(state, path)
    with pytest.raises(ValueError, match="meta-graphs of 0 networks, but 1 are to be trained"):
        restore(tmp_path)
