"""The loop that all subjects share: seed after seed, each case in a process of its own.

So a case that crashes, hangs or fills the memory is a finding like a wrong number, with its seed.
"""

import os
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import torch

SECONDS = 20  # of processor time that a case may take
BYTES = 2**29  # that a case may add to the memory of the process
ADDRESSES = 2**33  # that it may reserve, so that a mistake does not take the machine down


@dataclass(frozen=True)
class Subject:
    """`check` raises where something is wrong; `prepare` makes, once, what its cases share."""

    check: Callable[[random.Random], None]
    prepare: Callable[[], object] = lambda: None


def fuzz(name: str, subject: Subject, *, seed: int, seconds: float) -> int:
    """Try the seeds from `seed` on until the time is over, at least one; return how many.

    Raises:
        AssertionError: At the first finding, with the command that shows it again.
    """
    subject.prepare()
    end = time.monotonic() + seconds
    for number in count():
        if finding := run_alone(subject.check, seed + number):
            again = f"python -m tests.fuzz --only {name} --seed {seed + number} --minutes 0"
            raise AssertionError(f"{again}\n{finding}")
        if time.monotonic() >= end:
            return number + 1
    raise AssertionError("never reached")


def run_alone(check: Callable[[random.Random], None], seed: int) -> str:
    """Run a case in a child process; what went wrong, or an empty string."""
    memory = _resident_bytes()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _run(check, seed, writing)
    os.close(writing)
    with os.fdopen(reading, errors="replace") as pipe:
        finding = pipe.read()
    _, status, usage = os.wait4(child, 0)
    if os.WIFSIGNALED(status):
        return f"{finding}\nkilled by {signal.Signals(os.WTERMSIG(status)).name}"
    added = usage.ru_maxrss * 1024 - memory
    if not finding and added > BYTES:
        return f"took {added / 2**20:,.0f} MiB of memory"
    return finding


def _run(check: Callable[[random.Random], None], seed: int, writing: int) -> None:
    """The child: it writes its finding to the pipe, and never returns."""
    finding = ""
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, 2 * SECONDS))  # SIGXCPU
        addresses = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (addresses + ADDRESSES,) * 2)
        signal.alarm(60 * SECONDS)  # one that waits for ever takes no processor time
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        check(random.Random(seed))
    except BaseException:
        finding = traceback.format_exc()
    with os.fdopen(writing, "w") as pipe:
        pipe.write(finding)
    sys.stdout.flush()
    os._exit(0)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
