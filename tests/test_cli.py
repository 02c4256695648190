import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch

from tensus_tn import __version__
from tensus_tn.cli import COMMANDS, METHOD_NAMES, main
from tensus_tn.tasks import METHODS, Config
from tests.data.hgb_files import VENUES, write_hgb

FEW = ["--epochs", "3", "--no-progress"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def help_of(capsys, *arguments):
    with pytest.raises(SystemExit) as exit_:
        main([*arguments, "--help"])
    assert exit_.value.code == 0
    return " ".join(capsys.readouterr().out.split())


def test_train_in_batches(folder, capsys):
    assert main(["train", *FEW, "--batch-size", "16", "--fan-out", "3"]) == 0
    assert "best epoch" in capsys.readouterr().out
    assert main(["train", *FEW, "--batch-size", "16", "--fan-out", "few"]) != 0
    assert "fan_out must be numbers" in capsys.readouterr().err


def test_train_evaluate_show(folder, capsys):
    assert main(["train", "--data", "planted", *FEW]) == 0
    text = capsys.readouterr().out
    assert "most probable meta-graph" in text
    assert "best epoch" in text
    result = json.loads((folder / "runs/train-planted/result.json").read_text())
    for split in ("test", "val"):
        assert main(["evaluate", "runs/train-planted", "--split", split]) == 0
        scores = json.loads(capsys.readouterr().out)
        assert scores.pop("split") == split
        assert scores == result[split]
    assert (
        main(["show", "runs/train-planted/checkpoint.pt", "--top", "3", "--figure", "a.svg"]) == 0
    )
    text = capsys.readouterr().out
    assert text.count("probability") == 3
    assert "% of the whole" in text
    assert "<svg" in (folder / "a.svg").read_text()
    runs = ["runs/train-planted", "runs/train-planted/checkpoint.pt"]
    assert main(["explore", *runs, "--top", "7", "--instances", "--no-open"]) == 0
    assert "written to runs/train-planted/explore.html" in capsys.readouterr().out
    content = (folder / runs[0] / "explore.html").read_text().split('type="application/json">')[1]
    views = json.loads(content.split("</script>")[0])["views"]
    assert [view["name"] for view in views] == ["train-planted", "train-planted"]
    assert [len(view["best"]) for view in views] == [7, 7]
    lines = [line for entry in views[0]["best"] for line in entry["instances"]]
    assert lines
    assert all(re.fullmatch(r"[smt] \d+(, [smt] \d+)*", line) for line in lines)


def test_search_then_train_what_was_found(folder, capsys):
    assert main(["search", "--out", "my runs/found", *FEW]) == 0
    hint = "tensus-tn train --data planted --meta-graph 'my runs/found'"
    assert hint in capsys.readouterr().out
    assert main(["train", "--meta-graph", "my runs/found", "--out", "derived", *FEW]) == 0
    found, derived = (
        json.loads((folder / name / "result.json").read_text())
        for name in ("my runs/found", "derived")
    )
    assert found["config"]["search"] == "sampled"
    relations = [[link[:3] for link in r["meta_graphs"][0]["links"]] for r in (found, derived)]
    assert relations[0] == relations[1]


def test_compare(folder, capsys):
    methods = ["--methods", "tensus", "gtn", "--seeds", "2"]
    assert main(["compare", *methods, *FEW, "--out", "all"]) == 0
    lines = capsys.readouterr().out.splitlines()
    table = lines[lines.index("planted, 2 seeds, mean +- standard deviation") + 2 :]
    assert table[0].split()[:3] == ["method", "runs", "macro_f1"]
    assert {line.split()[0] for line in table[1:]} == {"tensus", "gtn"}
    rows = json.loads((folder / "all/compare.json").read_text())
    scores = np.array([row["test_macro_f1"] for row in rows if row["method"] == "gtn"])
    expected = f"{100 * scores.mean():.2f} +- {100 * scores.std(ddof=1):.2f}"
    assert expected in next(line for line in table if line.startswith("gtn"))
    assert len((folder / "all/compare.csv").read_text().splitlines()) == 5


@pytest.mark.parametrize("several", [False, True])
def test_a_folder_of_the_heterogeneous_graph_benchmark(folder, capsys, several):
    write_hgb(folder / "ACM", several=several)
    command = ["train", "--data", "ACM", *FEW, "--hidden", "4"]
    assert main(command) == 0
    text = capsys.readouterr().out
    assert "val    loss" in text
    assert "test   loss" in text
    assert "micro_f1" in text
    lines = (folder / "runs/train-ACM/predictions.txt").read_text().splitlines()
    assert [line.split("\t")[:3] for line in lines] == [[str(i), "", "0"] for i in range(10, 20)]
    tested = folder / "ACM/label.dat.test"
    tested.write_text("".join(f"{i}\t\t0\n" for i in range(10, 20)))
    assert main([*command, "--split-seed", "1", "--overwrite"]) == 0
    assert "test   not scored: the labels of the test nodes are unknown" in capsys.readouterr().out
    assert json.loads((folder / "runs/train-ACM/result.json").read_text())["test"] == {}
    assert main(["evaluate", "runs/train-ACM"]) == 2
    assert "unknown" in capsys.readouterr().err
    assert main(["evaluate", "runs/train-ACM", "--split", "val"]) == 0
    compared = ["compare", "--methods", "gtn", "--seeds", "1", *command[1:]]
    assert main(compared) == 0
    assert "unknown" in capsys.readouterr().out.splitlines()[-1]


def test_types_without_features_may_be_all_alike(folder):
    write_hgb(folder / "ACM")
    sizes = []
    for missing in ("one-hot", "none"):
        command = ["train", "--data", "ACM", *FEW, "--missing", missing, "--out", missing]
        assert main(command) == 0
        sizes.append(json.loads((folder / missing / "result.json").read_text())["num_parameters"])
    assert sizes[0] - sizes[1] == (VENUES - 1) * 64  # a vector for each venue, or one for all


def test_several_networks_are_averaged(folder, capsys):
    assert main(["train", *FEW, "--average", "2"]) == 0
    assert "test   loss" in capsys.readouterr().out
    for name in ("", "seed0/", "seed1/"):
        assert (folder / f"runs/train-planted/{name}result.json").exists()
    with pytest.raises(SystemExit):
        main(["train", *FEW, "--average", "0"])


def test_bench(capsys, folder):
    assert main(["bench", "--seconds", "0.01"]) == 0
    text = capsys.readouterr().out
    for name in ("soft, rank 1", "soft, rank 2", "sampled, rank 1", "derived"):
        assert name in text


def test_help_shows_every_default_of_the_data(capsys):
    text = help_of(capsys, "train", "--data", "imdb", "--preset", "diffmg")
    for field in fields(Config):
        assert f"--{field.name.replace('_', '-')}" in text
    assert "learning rate of the weights (Adam) (default: 0.01)" in text
    assert "on the projected input, as in DiffMG (default: 0.7)" in text
    assert "learning rate of the weights (Adam) (default: 0.005)" in help_of(
        capsys, "train", "--data", "imdb"
    )
    assert "learning rate of the cores (Adam) (default: 0.0003)" in help_of(
        capsys, "search", "--data", "imdb"
    )


def test_pairs_have_defaults_of_their_own(capsys):
    text = help_of(capsys, "train", "--data", "amazon")
    assert "a bias for either end, from ids and degrees (default: True)" in text
    assert "epochs without improvement before stopping; 0: never stop (default: 20)" in text
    text = help_of(capsys, "train", "--data", "amazon", "--preset", "diffmg")
    assert "a bias for either end, from ids and degrees (default: False)" in text


def test_flags_override_the_file_and_the_file_the_presets(folder):
    (folder / "c.toml").write_text(
        'data = "planted"\nlr = 0.5\nhidden = 4\nepochs = 2\nout = "o"\n'
    )
    assert main(["train", "--config", "c.toml", "--hidden", "3", "--no-progress"]) == 0
    config = json.loads((folder / "o/result.json").read_text())["config"]
    assert (config["lr"], config["hidden"], config["steps"]) == (0.5, 3, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--data", "nothing.npz"], "there is no nothing.npz"),
        (["train", "--rank", "0"], "rank must be positive"),
        (["train", "--config", "missing.toml"], "missing.toml"),
        (["train", "--config", "bad.toml"], "did you mean 'rank'"),
        (["train", "--config", "preset.toml"], "preset must be one of diffmg, got 'gtn'"),
        (["train", "--data", "ACM"], "douban, planted; did you mean 'acm'?"),
        (["show", "bad.toml"], "bad.toml is not a checkpoint, or is damaged"),
        (["train", "--out", "bad.toml"], "can't make the folder bad.toml: bad.toml is a file"),
        (["compare", "--out", "bad.toml"], "bad.toml is a file"),
        (["train", "--config", "number.toml"], "data must be of type str, got 3"),
        (["train", "--out", "bad.toml/runs"], "bad.toml/runs"),
        (["evaluate", "missing"], "there is no checkpoint missing"),
        (["train", "--hidden", "1000000000"], "bytes of memory that this machine has"),
        (["train", "--resume", "--overwrite"], "either resumed or overwritten"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(folder, capsys, arguments, message):
    (folder / "bad.toml").write_text("ranks = 2\n")
    (folder / "number.toml").write_text("data = 3\n")
    (folder / "preset.toml").write_text('preset = "gtn"\n')
    assert main(arguments) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.startswith("tensus-tn: error: ")
    assert len(errors.splitlines()) == 1


@pytest.mark.parametrize("arguments", [["compare", "--seeds", "0"], ["show", "x", "--top", "-1"]])
def test_numbers_that_must_be_positive(arguments, capsys):
    with pytest.raises(SystemExit):
        main(arguments)
    assert "invalid positive_integer value" in capsys.readouterr().err


def test_flags_are_not_abbreviated(folder, capsys):
    """Defaults come from --data and --config, which an abbreviation would hide."""
    (folder / "c.toml").write_text("epochs = 1\n")
    for flag in (["--conf", "c.toml"], ["--dat", "acm"]):
        with pytest.raises(SystemExit):
            main(["train", *flag])
        assert "unrecognized arguments" in capsys.readouterr().err


def test_missing_data_say_where_they_come_from(folder, capsys, monkeypatch):
    monkeypatch.setenv("TENSUS_DATA", str(folder))
    assert main(["train", "--data", "acm"]) == 2
    assert "Graph_Transformer_Networks" in capsys.readouterr().err


@pytest.mark.slow
def test_interrupt_and_resume_as_a_program(folder):
    """Ctrl-C ends with code 130 and a hint; what is resumed ends like an uninterrupted run."""
    command = [
        sys.executable,
        "-m",
        "tensus_tn",
        "train",
        "--no-progress",
        "--checkpoint-every",
        "2",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [*command, "--epochs", "5000", "--out", "a"], stderr=subprocess.PIPE, text=True,
        env=environment,
    )  # fmt: skip
    checkpoint, end = folder / "a/checkpoint.pt", time.monotonic() + 600
    while not checkpoint.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    assert checkpoint.exists(), process.stderr.read()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 130
    assert "--resume" in errors
    from tensus_tn._checkpoint import load_checkpoint

    done = len(load_checkpoint(checkpoint)["history"])
    few = ["train", "--no-progress", "--checkpoint-every", "2", "--epochs", str(done + 2)]
    assert main([*few, "--out", "a", "--resume"]) == 0
    assert main([*few, "--out", "b"]) == 0
    resumed, whole = (json.loads((folder / n / "result.json").read_text()) for n in "ab")
    assert resumed["history"] == whole["history"]


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["rules", "train", "-h"], *([name, "--help"] for name in COMMANDS)],
    ids=" ".join,
)
def test_help_comes_before_torch_is_loaded(arguments):
    script = f"""
import sys
from tensus_tn.cli import main
try:
    main({arguments})
except SystemExit as end:
    assert end.code == 0
assert "torch" not in sys.modules and "numpy" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_names_of_methods_are_known_before_torch_is_loaded():
    assert tuple(METHODS) == METHOD_NAMES


def test_help_lists_every_command(capsys):
    text = help_of(capsys)
    for name, command in COMMANDS.items():
        assert f"{name} {command.help}" in text


def test_every_command_takes_a_device(capsys):
    for name in COMMANDS:
        assert "--device" in help_of(capsys, name)


def test_the_device_is_honoured(folder, capsys):
    assert main(["train", "--data", "planted", *FEW]) == 0
    assert main(["train", "--data", "planted", *FEW, "--device", "nowhere"]) == 2
    assert "nowhere" in capsys.readouterr().err
    for command in (["train", *FEW, "--out", "elsewhere"], ["evaluate", "runs/train-planted"]):
        with pytest.raises(RuntimeError, match="meta"):  # no numbers come out of that device
            main([*command, "--device", "meta"])
    if torch.cuda.is_available():
        assert main(["evaluate", "runs/train-planted", "--device", "cuda"]) == 0


def test_a_run_is_not_overwritten_by_the_next(folder, capsys):
    assert main(["train", *FEW]) == 0
    assert main(["train", *FEW]) == 2
    assert "holds a run already" in capsys.readouterr().err
    assert main(["train", *FEW, "--overwrite"]) == 0


def test_an_interrupt_while_torch_is_loaded_is_one_line(folder):
    """Commands load torch themselves, so that Ctrl-C in these seconds ends them as at any time."""
    (folder / "torch.py").write_text("raise KeyboardInterrupt")  # as if it came just then
    root = str(Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), root])}
    for command in ("train", "search", "compare", "bench"):
        process = subprocess.run(
            [sys.executable, "-m", "tensus_tn", command],
            env=environment, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert process.returncode == 130, process.stderr
        assert len(process.stderr.splitlines()) == 1


def test_version(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.strip() == __version__
