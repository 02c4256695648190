"""`torchrun` as a user starts it: a run, and one that loses a process on its way."""

import csv
import os
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
TRAIN = "train --data planted --epochs 6 --steps 2 --hidden 8 --checkpoint-every 2 --resume --out"


def start(out, *flags, **environment):
    command = [*TORCHRUN, "--monitor-interval", "0.1", *flags, *TRAIN.split(), str(out)]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ROOT, **environment}
    return subprocess.run(command, capture_output=True, text=True, env=variables, timeout=300)


def history(out):
    with (out / "history.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_a_process_that_dies_is_started_again_and_nothing_is_lost(tmp_path):
    """The second process kills itself after the third epoch of its first life."""
    whole = start(tmp_path / "whole", "-m", "tensus_tn")
    assert whole.returncode == 0, whole.stderr[-3000:]
    assert whole.stdout.count("best epoch") == 1  # only the first process speaks
    program = os.path.join(ROOT, "tests", "distributed", "dying.py")
    broken = start(tmp_path / "broken", "--max-restarts", "1", program)
    assert broken.returncode == 0, broken.stderr[-3000:]
    assert broken.stderr.count("the second process dies") == 1
    assert history(tmp_path / "broken") == history(tmp_path / "whole")
