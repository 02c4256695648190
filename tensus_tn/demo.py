"""The example of `make demo`: a label that rank 1 can't express, and rank 2 learns.

The labels of a heterogeneous graph depend on two meta-paths at once, whose relations must be chosen
jointly. A rank-one tensor (DiffMG, GTN) that takes both must take the two mixed paths as well, which
are noise: it stays at an accuracy of 3/4 (`tensus_tn.data.planted` has the proof). Rank 2 finds them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from tensus_tn import show_config
from tensus_tn._files import write_atomically
from tensus_tn.data import PLANTED_PATHS, planted
from tensus_tn.nn import MetaGraph
from tensus_tn.tasks import Config, Result, compare, make_task, preset, restore, run, table
from tensus_tn.tasks.models import best_meta_graphs

RANKS = {"d = 1": 1, "d = 2": 2}


def main(out: str = "runs/demo", epochs: int = 150, seeds: int = 3) -> dict[str, list[Result]]:
    """Train at rank 1 and at rank 2, print what was found, and draw it to `out`.

    Args:
        out: Folder of the runs and of the figure.
        epochs: How many epochs each run has.
        seeds: Runs for each rank.
    """
    torch.set_num_threads(1)  # the graph is small
    task = make_task(planted(), "row")
    print(f"{task.data}\n\nplanted: the label of a node t is the sign of the sum over")
    for first, second in PLANTED_PATHS:
        print(f"    s -{first}-> m -{second}-> t")
    print("    the mixed paths are noise; rank 1 can't leave them out, and its bound is 75 %\n")
    settings = {**preset("planted"), "epochs": epochs, "out": out, "overwrite": True}
    config = Config().with_values(settings)
    methods = {
        name: lambda config, task, rank=rank: run(config.with_values({"rank": rank}), task)
        for name, rank in RANKS.items()
    }
    results = compare(config, task, range(seeds), methods)
    print(table(results, "micro_f1"))
    for name in RANKS:
        print(f"\n{name}: the most probable meta-graphs")
        for meta_graph in _found(out, name, 4):
            print(f"    {meta_graph.probability:6.1%}   {meta_graph}")
    figure = Path(out) / "planted.png"
    _draw(figure, _found(out, "d = 2", 2), results)
    print(f"\ndrawn to {figure}\n")
    show_config()
    return results


def _found(out: str, name: str, k: int) -> list[MetaGraph]:
    _, model = restore(Path(out) / name / "seed0")
    return best_meta_graphs(model, k)[0]


def _draw(path: Path, found: list[MetaGraph], results: dict[str, list[Result]]) -> None:
    """The meta-graphs that rank 2 found, above the learning curves of all runs."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplot_mosaic([["first", "second"], ["curves", "curves"]], height_ratios=[1, 2])
    for meta_graph, place in zip(found, ("first", "second"), strict=True):
        meta_graph.draw(axes[place])
        axes[place].set_title(f"probability {meta_graph.probability:.2f}", fontsize=10)
    for (name, runs), color in zip(results.items(), ("#D55E00", "#0072B2"), strict=True):
        for k, result in enumerate(runs):
            scores = [record["val_micro_f1"] for record in result.history]
            axes["curves"].plot(scores, color=color, label=name if k == 0 else None)
    axes["curves"].axhline(0.75, color="#555555", linestyle=":", label="bound of rank 1")
    axes["curves"].set(xlabel="epoch", ylabel="validation accuracy")
    axes["curves"].legend(loc="lower right")
    write_atomically(path, lambda file: figure.savefig(file, format="png", dpi=150))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="runs/demo", help="folder (default: runs/demo)")
    main(parser.parse_args().out)
