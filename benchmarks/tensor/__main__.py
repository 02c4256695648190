"""Print the table of ratios, and write it to `benchmarks/results` and `docs`."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import torch

from benchmarks.tensor.peers import PEERS
from benchmarks.tensor.report import text, write
from benchmarks.tensor.run import FULL_BATCH, installed, run
from benchmarks.timing import machine_facts


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.tensor", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small batches; writes nothing")
    parser.add_argument("--seconds", type=float, help="for each task (default 5; quick: 0.05)")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")  # of the peers
    torch.set_num_threads(1)
    for name, reason in installed()[1].items():
        print(f"{name}: {reason}")
    results = []
    seconds = arguments.seconds or (0.05 if arguments.quick else 5.0)
    for result in run(quick=arguments.quick, seconds=seconds):
        results.append(result)
        print(text(result), flush=True)
    if not arguments.quick:
        write(results, machine_facts(PEERS), FULL_BATCH, Path(__file__).parents[2])


if __name__ == "__main__":
    main()
