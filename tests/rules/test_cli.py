"""`tensus-tn rules train`, `rank` and `show`, on the planted graph and on files."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tensus_tn.cli import main
from tests.rules.test_readers import folder  # noqa: F401


def run(*arguments):
    return main(["rules", *map(str, arguments)])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    assert (
        run(
            "train",
            "--rank",
            2,
            "--steps",
            2,
            "--epochs",
            6,
            "--batch",
            100,
            "--quiet",
            "--out",
            out,
        )
        == 0
    )
    return out


def test_train_writes_what_rank_and_show_read(trained, capsys):
    result = json.loads((trained / "result.json").read_text())
    assert result["test"]["tail"]["hits@1"] == 1.0
    assert run("rank", trained, "--per-relation") == 0
    assert "ties pessimistic" in capsys.readouterr().out
    assert run("show", trained, "--relation", "r", "--top", 4) == 0
    text = capsys.readouterr().out
    for k in (1, 2, 3, 4):
        assert f"r(x, y) <- a{k}(x, z), b{k}(z, y)" in text


def test_formats_and_figure(trained, capsys, tmp_path):
    assert run("show", trained, "--relation", "r", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)[0]["relation"] == "r"
    assert run("show", trained, "--relation", "r", "--format", "anyburl") == 0
    assert "r(X,Y) <= a" in capsys.readouterr().out
    pytest.importorskip("matplotlib")
    assert run("show", trained, "--relation", "r", "--figure", tmp_path / "rules.png") == 0
    assert (tmp_path / "rules.png").stat().st_size > 1000


def test_resume(trained, tmp_path, capsys):
    few = [
        "train",
        "--rank",
        2,
        "--steps",
        2,
        "--epochs",
        2,
        "--batch",
        100,
        "--quiet",
        "--out",
        tmp_path,
    ]
    assert run(*few) == 0
    first = json.loads((tmp_path / "result.json").read_text())["history"]
    assert run(*few, "--resume") == 0
    assert json.loads((tmp_path / "result.json").read_text())["history"] == first
    assert run(*few) == 2
    assert "holds a run already (checkpoint.pt, result.json, model.pt)" in capsys.readouterr().err
    assert run(*few, "--resume", "--lr", "0.5") == 2
    assert "is of another run: lr: None there, 0.5 here" in capsys.readouterr().err
    assert json.loads((tmp_path / "result.json").read_text())["history"] == first
    with pytest.raises(SystemExit, match="2"):
        run(*few, "--resume", "--overwrite")
    assert "not allowed with argument --resume" in capsys.readouterr().err
    assert json.loads((tmp_path / "result.json").read_text())["history"] == first
    assert run(*few, "--overwrite", "--lr", "0.5") == 0
    assert json.loads((tmp_path / "result.json").read_text())["history"] != first


def test_a_folder_of_triples(folder, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    for version in ("v1.0", "v1.1"):
        shutil.copytree(folder, tmp_path / version)
        assert run("train", "--data", version, "--epochs", 1, "--quiet") == 0
        assert (tmp_path / "runs" / f"rules-{version}" / "model.pt").exists()
    monkeypatch.chdir(tmp_path / "runs")
    assert run("rank", "rules-v1.0") == 0


def test_a_known_name(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSUS_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    arrays = {"train": [[0, 0, 1], [1, 0, 2]], "valid": [[0, 0, 2]], "test": [[2, 0, 0]]}
    np.savez("kg_tiny.npz", **arrays, entity_names=["a", "b", "c"], relation_names=["r"])
    assert run("train", "--data", "tiny", "--epochs", 1, "--quiet") == 0
    assert run("rank", Path("runs", "rules-tiny")) == 0


def test_wrong_input(tmp_path, capsys):
    assert run("rank", tmp_path) == 2
    assert "has no model.pt" in capsys.readouterr().err
    for name in ("model.pt", "result.json"):
        (tmp_path / name).write_text("damaged")
    assert run("rank", tmp_path) == 2
    assert "result.json is not the result of a run" in capsys.readouterr().err
    assert run("train", "--data", tmp_path / "nothing") == 2
