"""The folder of a run: not overwritten, not shared, and without remains."""

import subprocess
import sys

import pytest

from tensus_tn._run_folder import CHECKPOINT, RESULT, open_run_folder

HOLD = """
import sys
from pathlib import Path
from tensus_tn._run_folder import open_run_folder
with open_run_folder(Path(sys.argv[1]), resume=False, overwrite=False):
    (Path(sys.argv[1]) / "checkpoint.pt.1.partial").write_text("half")
    print("open", flush=True)
    sys.stdin.read()
"""


def open_folder(path, **options):
    return open_run_folder(path, **{"resume": False, "overwrite": False, **options})


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
