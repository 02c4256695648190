"""The folder of a run: not overwritten, not shared, and without remains."""

import subprocess
import sys

import pytest

from tensus_tn.tasks import run
from tensus_tn.tasks.run_folder import CHECKPOINT, RESULT, open_run_folder
from tests.tasks.problems import SMALL

HOLD = """
import sys
from pathlib import Path
from tensus_tn.tasks.run_folder import open_run_folder
with open_run_folder(Path(sys.argv[1]), resume=False, overwrite=False):
    (Path(sys.argv[1]) / "checkpoint.pt.1.partial").write_text("half")
    print("open", flush=True)
    sys.stdin.read()
"""


def open_folder(path, **options):
    return open_run_folder(path, **{"resume": False, "overwrite": False, **options})


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


def test_overwriting_begins_with_an_empty_folder_but_leaves_other_files(tmp_path):
    for name in (CHECKPOINT, RESULT, "notes.txt"):
        (tmp_path / name).write_text("old")
    with open_folder(tmp_path, overwrite=True):
        assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_one_process_at_a_time_and_what_a_killed_one_leaves(tmp_path):
    folder = tmp_path / "run"
    command = [sys.executable, "-c", HOLD, str(folder)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "open\n"
        for options in ({}, {"resume": True}, {"overwrite": True}):
            opened = open_folder(folder, **options)
            with pytest.raises(BlockingIOError, match="another process is at work in"), opened:
                pass
    finally:
        holder.kill()
        holder.communicate()
    assert list(folder.iterdir())
    with open_folder(folder):
        assert not list(folder.iterdir())
    with open_folder(folder):  # the lock was given back
        pass
