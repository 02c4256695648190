"""Reproduce the paper's tables: run what is not yet there, then write the page."""

from __future__ import annotations

import argparse
from functools import partial
from multiprocessing import Pool
from pathlib import Path

import torch

from benchmarks.reproduce.methods import METHODS
from benchmarks.reproduce.runs import SEEDS, Run, execute, plan
from benchmarks.reproduce.settings import DATA
from benchmarks.timing import keep_freed_memory

ROOT = Path(__file__).parents[2]


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.reproduce", description=__doc__)
    parser.add_argument("--data", nargs="*", help=f"only these (default: all; {', '.join(DATA)})")
    parser.add_argument("--methods", nargs="*", help=f"only these ({', '.join(METHODS)})")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"how many (default: {SEEDS})")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks/results/reproduce.jsonl")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time (default: 2)")
    parser.add_argument("--page", action="store_true", help="only write page and figures")
    arguments = parser.parse_args()
    if not arguments.page:
        runs = [run for run in plan(arguments.seeds) if _wanted(run, arguments)]
        with Pool(arguments.jobs, _prepare_process) as pool:
            results = pool.imap_unordered(partial(execute, path=arguments.results), runs)
            for number, result in enumerate(results, 1):
                print(
                    f"{number}/{len(runs)} {result['data']} {result['method']} seed {result['seed']}: "
                    f"val {result['val']:.2f} test {result['test']:.2f} ({result['seconds']:.0f} s)",
                    flush=True,
                )
    from benchmarks.reproduce.report import write

    write(arguments.results, ROOT)


def _prepare_process() -> None:
    torch.set_num_threads(1)
    keep_freed_memory()


def _wanted(run: Run, arguments: argparse.Namespace) -> bool:
    return run.data in (arguments.data or [run.data]) and run.method in (
        arguments.methods or [run.method]
    )


if __name__ == "__main__":
    main()
