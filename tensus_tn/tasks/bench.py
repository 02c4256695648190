"""How long an epoch takes, by rank and kind of search."""

from __future__ import annotations

import statistics
import time

import torch

from tensus_tn.tasks.config import Config
from tensus_tn.tasks.models import best_meta_graphs, build_model
from tensus_tn.tasks.runs import load_task
from tensus_tn.tasks.train import Trainer

_RANKS = (1, 2, 4)


def bench(config: Config, seconds: float = 5.0) -> str:
    """A table of the median time of a training step and of an evaluation, in milliseconds.

    Networks take turns, so that what else the machine does falls on all alike.

    Args:
        config: Data and network; rank and search are varied.
        seconds: About how long to measure each network.

    Example:
        >>> print(bench(Config(topology="path", steps=2, hidden=8), seconds=0.01))
        planted, ... threads: median (quartiles)
        network                        step ms         evaluate ms
        soft, rank 1 ...
    """
    task = load_task(config)
    config = config.with_values({"search": "soft"})
    variants = {f"soft, rank {d}": config.with_values({"rank": d}) for d in _RANKS}
    one = config.with_values({"rank": 1})
    trainers = {name: Trainer(build_model(c, task.spec), task, c) for name, c in variants.items()}
    sampled = one.with_values({"search": "sampled"})
    trainers["sampled, rank 1"] = Trainer(build_model(sampled, task.spec), task, sampled)
    chosen = best_meta_graphs(build_model(one, task.spec), 1)
    trainers["derived"] = Trainer(build_model(one, task.spec, chosen), task, one)
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in trainers}
    for trainer in trainers.values():  # warm up
        trainer.step()
        trainer.evaluate("val")
    end = time.perf_counter() + seconds * len(trainers)
    while not times["derived"][0] or time.perf_counter() < end:
        for name, trainer in trainers.items():
            start = time.perf_counter()
            trainer.step()
            middle = time.perf_counter()
            trainer.evaluate("val")
            times[name][0].append(middle - start)
            times[name][1].append(time.perf_counter() - middle)
    return "\n".join(
        [
            f"{task.data.name}, {torch.get_num_threads()} threads: median (quartiles)",
            _line("network", "step ms", "evaluate ms"),
            *(_line(name, *map(_median, both)) for name, both in times.items()),
        ]
    )


def _line(name: str, step: str, evaluate: str) -> str:
    return f"{name:<18}{step:>20}{evaluate:>20}"


def _median(times: list[float]) -> str:
    """In milliseconds, with the quartiles."""
    if len(times) < 2:
        return f"{1e3 * times[0]:.1f}"
    low, middle, high = statistics.quantiles(times, n=4)
    return f"{1e3 * middle:.1f} ({1e3 * low:.1f}-{1e3 * high:.1f})"
