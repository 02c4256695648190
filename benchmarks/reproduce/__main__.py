"""Reproduce the paper's tables: run what is not yet there, then write the page."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch

from benchmarks.reproduce.methods import METHODS
from benchmarks.reproduce.runs import Run, execute, plan
from benchmarks.reproduce.settings import DATA

ROOT = Path(__file__).parents[2]


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.reproduce", description=__doc__)
    parser.add_argument("--data", nargs="*", help=f"only these (default: all; {', '.join(DATA)})")
    parser.add_argument("--methods", nargs="*", help=f"only these ({', '.join(METHODS)})")
    parser.add_argument("--seeds", type=int, default=5, help="how many (default: 5)")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks/results/reproduce")
    parser.add_argument("--share", default="0/1", help="run each n-th run only, as k/n, k from 0")
    parser.add_argument("--page", action="store_true", help="only write page and figures")
    arguments = parser.parse_args()
    os.environ.setdefault("TENSUS_DATA", str(ROOT.parent / "shared/data"))
    torch.set_num_threads(1)
    if not arguments.page:
        number, of = map(int, arguments.share.split("/"))
        _run(
            [run for run in plan(arguments.seeds) if _wanted(run, arguments)][number::of],
            arguments.results,
        )
    from benchmarks.reproduce.report import write

    write(arguments.results, ROOT)


def _wanted(run: Run, arguments: argparse.Namespace) -> bool:
    return run.data in (arguments.data or [run.data]) and run.method in (
        arguments.methods or [run.method]
    )


def _run(runs: list[Run], folder: Path) -> None:
    tasks: dict = {}
    for number, run in enumerate(runs, 1):
        result = execute(run, folder, tasks)
        print(
            f"{number}/{len(runs)} {run.data} {run.method} seed {run.seed}: val {result['val']:.2f}"
            f" test {result['test']:.2f} ({result['seconds']:.0f} s)",
            flush=True,
        )


if __name__ == "__main__":
    main()
