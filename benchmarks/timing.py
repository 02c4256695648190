"""Timing several contenders fairly: warm, interleaved in one process, medians with their spread."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from statistics import median, quantiles
from typing import Any

import torch


@dataclass(frozen=True)
class Timing:
    """The times of one contender, in seconds: the median and the quartiles of the rounds."""

    median: float
    low: float
    high: float
    rounds: int


def measure(
    contenders: Mapping[str, Callable[[], object]],
    *,
    seconds: float = 5.0,
    least_rounds: int = 5,
    most_rounds: int = 500,
    least_time: float = 2e-4,
) -> dict[str, Timing]:
    """Time all contenders in turn, round after round, so that drifts of the machine hit each alike.

    A call that is shorter than ``least_time`` is repeated within a round, and the round counts its
    mean. Rounds end after about ``seconds`` for all contenders together. The garbage collector is
    off while a round runs.
    """
    calls = {}
    for name, call in contenders.items():
        call()
        call()  # warm: caches filled, code compiled
        calls[name] = max(1, round(least_time / _time(call, 1)))
    a_round = sum(_time(call, calls[name]) * calls[name] for name, call in contenders.items())
    rounds = min(max(least_rounds, int(seconds / a_round)), most_rounds)
    times: dict[str, list[float]] = {name: [] for name in contenders}
    gc.collect()
    gc.freeze()  # what lives by now is not looked at again: a collection of all modules takes 0.3 s
    gc.disable()
    try:
        for _ in range(rounds):
            gc.collect()
            for name, call in contenders.items():
                times[name].append(_time(call, calls[name]))
    finally:
        gc.enable()
        gc.unfreeze()
    return {name: _summary(values) for name, values in times.items()}


def _time(call: Callable[[], object], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def _summary(values: list[float]) -> Timing:
    low, _, high = quantiles(values, n=4) if len(values) > 1 else values * 3
    return Timing(median(values), low, high, len(values))


def keep_freed_memory() -> None:
    """Make malloc reuse memory rather than return it, so that page faults do not decide."""
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(-4, 0)  # M_MMAP_MAX
        libc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD
    except (OSError, AttributeError):
        print("This is not glibc: its malloc is used as it is.")


def machine_facts(packages: Iterable[str] = ()) -> dict[str, Any]:
    """What a reader must know to judge the numbers: processor, threads, versions, date."""
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "packages": {name: installed_version(name) for name in packages},
    }


def installed_version(package: str) -> str | None:
    """The version of an installed package, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(x.split(":", 1)[1].strip() for x in lines if x.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


def format_time(seconds: float) -> str:
    """Seconds with three digits and a fitting unit.

    Example:
        >>> format_time(0.00123), format_time(4.5e-5)
        ('1.23 ms', '45 us')
    """
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
