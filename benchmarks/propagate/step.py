"""A whole training step of `tensus-tn train` with its defaults, and what rows and sparse products save.

    python -m benchmarks.propagate.step

The step is projection, propagation, loss, backward pass and optimisers. One contender computes all rows
and then selects those of the training nodes; another one also takes `torch.sparse.mm` for features.
"""

import argparse
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from benchmarks.timing import Timing, format_time, keep_freed_memory, measure
from tensus_tn.data import load
from tensus_tn.nn import sparse_features
from tensus_tn.tasks import Config, Trainer, build_model, make_task


class AllRows(nn.Module):
    """A network that says nothing of rows, so that a task calls it for all nodes and then selects."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network
        self.arch_parameters = network.arch_parameters

    def forward(self, *inputs: Any) -> Tensor:
        """The scores of all nodes."""
        scores: Tensor = self.network(*inputs)
        return scores


def run_case(data: str, seconds: float) -> dict[str, Timing]:
    """Time the step as it is, over all rows, and over all rows with products of PyTorch."""
    config = Config(data=data, progress=False)
    task = make_task(load(data), config.normalisation, even=config.even)

    def trainer(wrap: Callable[[nn.Module], nn.Module]) -> Trainer:
        torch.manual_seed(config.seed)
        return Trainer(wrap(build_model(config, task.spec)), task, config)

    ours, whole, plain = trainer(lambda model: model), trainer(AllRows), trainer(AllRows)

    def plain_step() -> float:
        with patch.object(sparse_features, "_has_kernel", lambda x, weight: False):
            return plain.step()

    assert abs(ours.evaluate("train")["loss"] - whole.evaluate("train")["loss"]) < 1e-5
    steps = {
        "as it is": ours.step,
        "all rows, then select": whole.step,
        "the same with torch.sparse.mm": plain_step,
    }
    return measure(steps, seconds=seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="*", default=["dblp", "acm", "imdb"])
    parser.add_argument("--seconds", type=float, default=20.0, help="for each data set")
    options = parser.parse_args()
    keep_freed_memory()
    for data in options.data:
        times = run_case(data, options.seconds)
        first = next(iter(times.values())).median
        cells = (
            f"{title} {format_time(t.median)} ({t.median / first:.1f}x)"
            for title, t in times.items()
        )
        print(f"{data}: {', '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
