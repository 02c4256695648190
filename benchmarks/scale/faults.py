"""Kill a process of a training run at a random time, again and again: nothing may be lost.

    python -m benchmarks.scale.faults --kills 20

Every run is `torchrun` with two processes and restarts; one of them is killed (SIGKILL) in a random
epoch, or before the first. The run must end by itself, with the losses of every epoch as in a run that
nothing happened to. How long the other process takes to notice is printed as well.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def start(out: Path, epochs: int, log: Path) -> subprocess.Popen[bytes]:
    """A training run of two processes, which goes on from its checkpoint after a restart."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    torchrun += ["--nproc-per-node", "2", "--max-restarts", "3", "--monitor-interval", "0.1"]
    train = ["-m", "tensus_tn", "train", "--data", "planted", "--search", "sampled"]
    train += ["--epochs", str(epochs), "--patience", "0", "--checkpoint-every", "5"]
    command = [*torchrun, *train, "--resume", "--out", str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    with log.open("wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=file, env=environment)


def workers(parent: int) -> list[int]:
    """The processes that `torchrun` has started, and that train by now."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
            command = (folder / "cmdline").read_bytes()
        except (OSError, ValueError):
            continue
        if int(stat[1]) == parent and b"tensus_tn" in command:
            found.append(int(folder.name))
    return sorted(found)


def wait_for(epoch: int, log: Path, run: subprocess.Popen[bytes]) -> None:
    """Return once an epoch is done, or with 0 once the processes are there."""
    while run.poll() is None:
        done = re.findall(r"epoch (\d+)/", log.read_text(errors="replace"))
        if (done and int(done[-1]) >= epoch) or (not epoch and workers(run.pid)):
            return
        time.sleep(0.01)


def notice(log: Path, run: subprocess.Popen[bytes]) -> str:
    """When the other process says that it lost one, unless `torchrun` sees that first and ends it."""
    begin = time.monotonic()
    while run.poll() is None:
        if b"lost another one" in log.read_bytes():
            return f"noticed after {time.monotonic() - begin:.2f} s"
        time.sleep(0.01)
    return "noticed by torchrun"


def history(out: Path) -> list[dict[str, str]]:
    """The records of all epochs."""
    with (out / "history.csv").open() as file:
        return list(csv.DictReader(file))


def main() -> None:
    """Read the command line, and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        assert start(folder / "whole", options.epochs, folder / "log").wait() == 0
        expected = history(folder / "whole")
        lost = 0
        for kill in range(options.kills):
            out, log = folder / "run", folder / "log"
            shutil.rmtree(out, ignore_errors=True)
            run = start(out, options.epochs, log)
            epoch = chance.randrange(options.epochs * 2 // 3)
            wait_for(epoch, log, run)
            time.sleep(chance.uniform(0, 0.05))
            alive = workers(run.pid) if run.poll() is None else []
            victim = chance.choice(alive) if alive else None
            if victim is not None:
                os.kill(victim, signal.SIGKILL)
            noticed = notice(log, run)
            code = run.wait()
            same = code == 0 and history(out) == expected
            lost += not same
            what = f"process {alive.index(victim)} of {len(alive)}" if victim else "none, too late"
            print(
                f"kill {kill + 1}: {what} in epoch {epoch + 1}, {noticed}, "
                f"exit {code}, {'the same result' if same else 'ANOTHER RESULT'}",
                flush=True,
            )
            if not same:
                print(log.read_text(errors="replace")[-2000:])
        print(f"{options.kills} kills, {lost} lost")


if __name__ == "__main__":
    main()
