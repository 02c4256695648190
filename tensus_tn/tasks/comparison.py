"""Several methods and seeds under the same settings, in one table."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tensus_tn._files import make_folder, write_csv, write_json
from tensus_tn.tasks.config import Config
from tensus_tn.tasks.models import build_model
from tensus_tn.tasks.presets import SHAPE, preset
from tensus_tn.tasks.result import Result
from tensus_tn.tasks.runs import run
from tensus_tn.tasks.task import Task

#: Trains by the settings and reports; a method of your own needs no more than this.
Method = Callable[[Config, Task], Result]


def tensus(config: Config, task: Task) -> Result:
    """All meta-graphs weighted by a tensor of rank 2 (or more, as set)."""
    return run(config.with_values({"rank": max(config.rank, 2), "ties": "node"}), task)


def cp(config: Config, task: Task) -> Result:
    """One rank index for all states, of the rank that comes closest to TENSUS in parameters."""
    rank = equal_rank(config.with_values({"rank": max(config.rank, 2), "ties": "node"}), task)
    return run(config.with_values({"rank": rank, "ties": "global"}), task)


def gtn(config: Config, task: Task) -> Result:
    """A path, rank 1, all relations weighted."""
    return run(config.with_values({"topology": "path", "rank": 1}), task)


def diffmg(config: Config, task: Task) -> Result:
    """Search over the complete DAG by sampling at rank 1, then train the meta-graph it ends with."""
    if not config.out:
        raise ValueError("diffmg keeps its search in a file: set `out`")
    config = config.with_values({"topology": "complete"})
    same = {key: getattr(config, key) for key in SHAPE}
    search = {**preset(config.data, "search"), **same, "out": str(Path(config.out) / "search")}
    run(config.with_values(search), task)
    return run(config.with_values({"rank": 1, "meta_graph": search["out"]}), task)


METHODS: dict[str, Method] = {"tensus": tensus, "cp": cp, "diffmg": diffmg, "gtn": gtn}


def equal_rank(config: Config, task: Task) -> int:
    """The rank of CP with about as many core parameters as the network of the settings has.

    Example:
        >>> from tensus_tn.data import planted
        >>> from tensus_tn.tasks import make_task
        >>> equal_rank(Config(rank=2), make_task(planted(num_nodes=50)))
        3
    """

    def size(settings: Config) -> int:
        return sum(p.numel() for p in build_model(settings, task.spec).arch_parameters())

    wanted = size(config)
    sizes: dict[int, int] = {}
    while not sizes or max(sizes.values()) < wanted:
        rank = len(sizes) + 1
        sizes[rank] = size(config.with_values({"ties": "global", "rank": rank}))
    return min(sizes, key=lambda rank: abs(sizes[rank] - wanted))


def compare(
    config: Config,
    task: Task,
    seeds: Sequence[int],
    methods: Mapping[str, Method] = METHODS,
    report: Callable[[str, Result], object] = lambda name, result: None,
) -> dict[str, list[Result]]:
    """Run every method with every seed; each run has a folder of its own in `out`.

    Args:
        config: Shared by all; a method changes what makes it different.
        task: Shared by all.
        seeds: For search and training, one run each.
        methods: By name.
        report: Called after every run.

    Example:
        >>> from tensus_tn.data import planted
        >>> from tensus_tn.tasks import make_task
        >>> config = Config(topology="path", steps=2, epochs=2, progress=False)
        >>> some = {"tensus": tensus, "gtn": gtn}
        >>> results = compare(config, make_task(planted(num_nodes=50)), [0, 1], some)
        >>> len(results["gtn"])
        2
    """
    if config.out:
        make_folder(Path(config.out))
    results: dict[str, list[Result]] = {name: [] for name in methods}
    for seed in seeds:
        for name, method in methods.items():
            out = str(Path(config.out) / name / f"seed{seed}") if config.out else ""
            result = method(config.with_values({"seed": seed, "out": out}), task)
            results[name].append(result)
            report(name, result)
    if config.out:
        rows = [_row(name, result) for name, all_ in results.items() for result in all_]
        write_csv(Path(config.out) / "compare.csv", rows)
        write_json(Path(config.out) / "compare.json", rows)
    return results


def table(results: Mapping[str, Sequence[Result]], metric: str) -> str:
    """Mean and standard deviation over the seeds, in percent, best first.

    Where there are no test scores the order is that of validation.

    Example:
        >>> def result(score):
        ...     return Result({}, 1, 2, {"auc": score}, {"auc": score}, 10, 0.5)
        >>> print(table({"a": [result(0.5), result(0.6)], "b": [result(0.75)]}, "auc"))
        method  runs  auc val        auc test       parameters  epochs  seconds
        b          1  75.00          75.00                  10     2.0      0.5
        a          2  55.00 +- 7.07  55.00 +- 7.07          10     2.0      0.5
    """
    order = sorted(
        results, key=lambda name: -_mean([(r.test or r.val)[metric] for r in results[name]])
    )
    width = max([6, *map(len, results)])
    lines = [
        f"{'method':<{width}}  runs  {metric + ' val':<15}{metric + ' test':<15}"
        "parameters  epochs  seconds"
    ]
    for name in order:
        runs = results[name]
        val, test = (
            _spread([split[metric] for split in splits if split])
            for splits in ([r.val for r in runs], [r.test for r in runs])
        )
        lines.append(
            f"{name:<{width}}  {len(runs):>4}  {val:<15}{test:<15}"
            f"{runs[0].num_parameters:>10}  {_mean([r.epochs for r in runs]):>6.1f}"
            f"  {_mean([r.seconds for r in runs]):>7.1f}"
        )
    return "\n".join(lines)


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values)


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "unknown"
    text = f"{100 * _mean(values):.2f}"
    return text if len(values) < 2 else f"{text} +- {100 * statistics.stdev(values):.2f}"


def _row(name: str, result: Result) -> dict[str, Any]:
    scores = {
        f"{split}_{key}": value
        for split in ("val", "test")
        for key, value in getattr(result, split).items()
    }
    return {
        "method": name,
        "seed": result.config["seed"],
        **scores,
        "best_epoch": result.best_epoch,
        "epochs": result.epochs,
        "num_parameters": result.num_parameters,
        "seconds": result.seconds,
    }
