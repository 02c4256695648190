"""The figures of the page: rank, CP against TENSUS, learning curves, learned meta-graphs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from benchmarks.reproduce.confidence import half_width
from benchmarks.reproduce.runs import RANK_STUDY, processor_seconds
from benchmarks.reproduce.settings import NODES, PAIRS
from tensus_tn.nn import MetaGraph

Results = Sequence[dict[str, Any]]
RANKS = {"recipe-rank1": 1, "recipe": 2, "recipe-d3": 3, "recipe-d4": 4, "recipe-d5": 5}
COLORS = {"tensus": "#1b6ca8", "cp": "#d1495b", "rank1": "#6a994e", "diffmg": "#8d6a9f"}
LABELS = {"tensus": "TENSUS, d = 2", "cp": "CP", "rank1": "d = 1", "diffmg": "DiffMG"}


def write(results: Results, folder: Path) -> None:
    """Draw what there are results for."""
    plt.rcParams.update({"svg.hashsalt": "tensus", "font.size": 9, "axes.grid": True,
                         "grid.alpha": 0.3})  # fmt: skip
    for name, draw in (("rank", _rank), ("cp", _cp), ("curves", _curves), ("meta-graphs", _graphs)):
        figure = draw(results)
        figure.savefig(folder / f"reproduction-{name}.svg", metadata={"Date": None})
        plt.close(figure)


def _runs(results: Results, data: str, method: str) -> list[dict[str, Any]]:
    return [r for r in results if r["data"] == data and r["method"] == method]


def _with_runs(results: Results) -> list[str]:
    """The data sets that TENSUS has run on."""
    return [name for name in NODES + PAIRS if _runs(results, name, "tensus")]


def _panels(count: int, height: float = 2.6) -> tuple[Any, list[Axes]]:
    figure, axes = plt.subplots(
        1, count, figsize=(3.2 * count, height), squeeze=False, layout="constrained"
    )
    return figure, list(axes[0])


def _rank(results: Results) -> Any:
    """Scores and time of the defaults against the rank, and of CP, with confidence intervals."""
    figure, axes = _panels(len(RANK_STUDY) + 1)
    for ax, data in zip(axes, RANK_STUDY, strict=False):
        points = _by_rank(results, data, itemgetter("test"))
        ax.errorbar(*points, marker="o", capsize=3, color=COLORS["tensus"], label="TENSUS")
        if cp := [r["test"] for r in _runs(results, data, "recipe-cp")]:
            ax.errorbar(
                [2.15], [fmean(cp)], [half_width(cp)], marker="s", capsize=3, color=COLORS["cp"],
                label="CP, as many parameters", linestyle="none",
            )  # fmt: skip
        ax.set(title=f"{data}, soft", xlabel="rank d", xticks=range(1, 6))
    axes[0].set_ylabel("test macro-F1")
    axes[0].legend(fontsize=7, loc="lower right")
    for data in RANK_STUDY:
        axes[-1].errorbar(
            *_by_rank(results, data, processor_seconds), marker="o", capsize=3, label=data
        )
    axes[-1].set(title="processor seconds", xlabel="rank d", xticks=range(1, 6))
    axes[-1].set_ylim(bottom=0)
    axes[-1].legend()
    return figure


def _by_rank(
    results: Results, data: str, value: Callable[[dict[str, Any]], float]
) -> tuple[list[int], list[float], list[float]]:
    """Ranks, means, and halves of their 95 % confidence intervals."""
    ranks, means, errors = [], [], []
    for method, rank in RANKS.items():
        if values := [value(r) for r in _runs(results, data, method)]:
            ranks.append(rank)
            means.append(fmean(values))
            errors.append(half_width(values))
    return ranks, means, errors


def _cp(results: Results) -> Any:
    """Test scores of every seed, for TENSUS, CP of equal parameters, and rank 1."""
    names = _with_runs(results)
    figure, axes = _panels(len(names))
    for ax, data in zip(axes, names, strict=True):
        ticks = []
        for place, method in enumerate(("rank1", "cp", "tensus")):
            runs = _runs(results, data, method)
            if not runs:
                continue
            values = [r["test"] for r in runs]
            ax.plot([place] * len(values), values, "o", color=COLORS[method], alpha=0.5)
            ax.plot([place - 0.25, place + 0.25], [fmean(values)] * 2, color=COLORS[method], lw=2)
            ticks.append((place, f"{LABELS[method]}\n{runs[0]['core_parameters']} parameters"))
        ax.set_xticks([t[0] for t in ticks], [t[1] for t in ticks], fontsize=7)
        ax.set(title=f"{data}: test {'AUC' if data in PAIRS else 'macro-F1'}", xlim=(-0.6, 2.6))
    return figure


def _curves(results: Results) -> Any:
    """Above: the best validation score so far against candidates; below: the final training."""
    data = _with_runs(results)
    size = (3.2 * len(data), 5)
    figure, grid = plt.subplots(2, len(data), figsize=size, squeeze=False, layout="constrained")
    for (above, below), name in zip(grid.T, data, strict=True):
        sign = -100.0 if name in PAIRS else 1.0
        for method in ("rank1", "cp", "tensus", "diffmg"):
            runs = _runs(results, name, method)
            searches = [
                list(accumulate((s for batch in r["search"] for s in batch), min))
                for r in runs
                if "search" in r
            ]
            style = {"color": COLORS[method], "label": LABELS[method]}
            if searches:
                above.plot([sign * v for v in _mean(searches)], **style)
            if runs:
                below.plot(_mean([r["curve"] for r in runs]), **style)
        above.set(title=name, xlabel="candidates")
        below.set_xlabel("epoch")
    grid[0][0].set_ylabel("best of search (loss; AUC)")
    grid[1][0].set_ylabel("validation score in training")
    grid[1][0].legend(fontsize=7)
    return figure


def _mean(curves: Sequence[Sequence[float]]) -> list[float]:
    """The mean over curves, as far as the shortest goes."""
    return [fmean(values) for values in zip(*curves, strict=False)]


def _graphs(results: Results) -> Any:
    """The meta-graphs of the seed that validation likes best, for TENSUS."""
    best = [
        min(runs, key=lambda r: r["criterion"])
        for data in NODES + PAIRS
        if (runs := _runs(results, data, "tensus"))
    ]
    drawn = [(r, side, m) for r in best for side, m in enumerate(r["meta_graphs"])]
    figure, axes = plt.subplots(
        max(len(drawn), 1), 1, figsize=(5, 2.7 * max(len(drawn), 1)), squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for ax, (run, side, graph) in zip(axes[:, 0], drawn, strict=False):
        MetaGraph.from_json(json.dumps(graph)).draw(ax)
        tower = ("", ", source", ", target")[0 if len(run["meta_graphs"]) == 1 else side + 1]
        ax.set_title(f"{run['data']}{tower}, seed {run['seed']}: test {run['test']:.2f}")
    return figure
