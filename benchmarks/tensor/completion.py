"""Tensors found again from a tenth of their entries: how often, by this library and its peers."""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import date
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor

from tensus_tn import Dag, DagTensor, complete

FOUND = 1e-2  # relative error of the entries that were not seen
SEEDS = range(100, 110)
ROOT = Path(__file__).parents[2]
TITLE = "## Completion"
LIBRARIES = ("tensus_tn", "tensorly", "tntorch")


class Problem(NamedTuple):
    """A random network, normal cores, of which a tenth of the entries is seen."""

    name: str
    dag: Dag
    choices: int
    rank: int
    cp: bool = False

    def title(self) -> str:
        return f"{self.name}, {self.choices} choices, rank {self.rank}"

    def draw(self, seed: int) -> tuple[Tensor, Tensor]:
        """The dense tensor, float64, and where it is seen, (n, order)."""
        generator = torch.Generator().manual_seed(seed)
        ties = "global" if self.cp else "node"
        network = DagTensor(self.dag, self.choices, self.rank, parametrization="free", ties=ties)
        network = network.double()
        with torch.no_grad():
            for core in network.parameters():
                core.copy_(torch.randn(core.shape, generator=generator, dtype=torch.float64))
            dense = network.to_dense()
        seen = torch.randperm(dense.numel(), generator=generator)[: dense.numel() // 10]
        return dense, torch.stack(torch.unravel_index(seen, dense.shape), 1)


PROBLEMS = (
    Problem("path of order 5", Dag.path(5), 6, 3),
    Problem("CP of order 4", Dag.path(4), 8, 3, cp=True),
    Problem("CP of order 5", Dag.path(5), 6, 3, cp=True),
    Problem("CP of order 6", Dag.path(6), 5, 3, cp=True),
    Problem("complete DAG, 6 edges", Dag.complete(3), 5, 2),
    Problem("complete DAG, 10 edges", Dag.complete(4), 3, 2),
)
#: The same with fewer entries for each number that is to be found.
SMALLER = (
    Problem("path of order 5", Dag.path(5), 5, 3),
    Problem("CP of order 4", Dag.path(4), 6, 3, cp=True),
    Problem("CP of order 4", Dag.path(4), 5, 3, cp=True),
    Problem("CP of order 5", Dag.path(5), 4, 3, cp=True),
    Problem("CP of order 6", Dag.path(6), 4, 3, cp=True),
    Problem("complete DAG, 6 edges", Dag.complete(3), 4, 2),
    Problem("complete DAG, 6 edges", Dag.complete(3), 3, 2),
    Problem("complete DAG, 10 edges", Dag.complete(4), 2, 2),
)

Fit = Callable[[Problem, Tensor, Tensor, int], Tensor]


def ours(problem: Problem, dense: Tensor, index: Tensor, seed: int) -> Tensor:
    """`complete` as it comes: up to 20 starts."""
    ties = "global" if problem.cp else "node"
    network, _ = complete(
        index,
        dense[tuple(index.T)],
        problem.dag,
        problem.choices,
        problem.rank,
        ties=ties,
        seed=seed,
        progress=False,
    )
    with torch.no_grad():
        return network.to_dense()


def tensorly(problem: Problem, dense: Tensor, index: Tensor, seed: int) -> Tensor:
    """`parafac(mask=)`, up to 10 random starts of up to 1,000 sweeps; the best at what was seen."""
    import tensorly as tl
    from tensorly.decomposition import parafac

    mask = torch.zeros(dense.shape, dtype=torch.float64)
    mask[tuple(index.T)] = 1

    def start(number: int) -> Tensor:
        with tl.backend_context("numpy"):
            cp = parafac(
                (dense * mask).numpy(),
                problem.rank,
                init="random",
                mask=mask.numpy(),
                n_iter_max=1000,
                tol=1e-10,
                random_state=100 * seed + number,
            )
            return torch.from_numpy(tl.cp_to_tensor(cp))

    return _best(start, 10, dense, index)


def tntorch(problem: Problem, dense: Tensor, index: Tensor, seed: int) -> Tensor:
    """`optimize` at the entries, up to 3 random starts of 1,000 steps of Adam; the best of them."""
    import tntorch as tn

    values = dense[tuple(index.T)].float()

    def start(number: int) -> Tensor:
        torch.manual_seed(100 * seed + number)
        ranks = {"ranks_cp" if problem.cp else "ranks_tt": problem.rank}
        network = tn.rand(list(dense.shape), requires_grad=True, **ranks)
        tn.optimize(
            network,
            lambda t: torch.norm(t[index].torch() - values) / values.norm(),
            optimizer=partial(torch.optim.Adam, lr=0.01),
            tol=1e-9,
            max_iter=1000,
            verbose=False,
        )
        return network.torch().detach().double()

    return _best(start, 3, dense, index)


def _best(start: Callable[[int], Tensor], starts: int, dense: Tensor, index: Tensor) -> Tensor:
    """The best of several starts by what was seen; the first that is exact there ends the search."""
    at, best, least = tuple(index.T), dense, float("inf")
    for number in range(starts):
        tensor = start(number)
        error = float((tensor[at] - dense[at]).norm() / dense[at].norm())
        if error < least:
            best, least = tensor, error
        if least < 1e-4:
            break
    return best


def peers(problem: Problem) -> dict[str, Fit]:
    """Who can be asked: TensorLy completes CP alone, tntorch CP and trains."""
    found: dict[str, Fit] = {"tensus_tn": ours}
    if problem.cp:
        found["tensorly"] = tensorly
    if problem.cp or problem.dag == Dag.path(len(problem.dag.edges)):
        found["tntorch"] = tntorch
    return found


class Row(NamedTuple):
    """How often a library found a tensor, and how long it took, in the median."""

    problem: str
    library: str
    found: int
    tried: int
    seconds: float


def run(problem: Problem, fits: dict[str, Fit], seeds: range) -> Iterator[Row]:
    """A problem with every seed, by all of some libraries."""
    for library, fit in fits.items():
        errors, times = [], []
        for seed in seeds:
            dense, index = problem.draw(seed)
            start = time.process_time()
            tensor = fit(problem, dense, index, seed)
            times.append(time.process_time() - start)
            hidden = torch.ones(dense.shape, dtype=torch.bool)
            hidden[tuple(index.T)] = False
            errors.append(float((tensor - dense)[hidden].norm() / dense[hidden].norm()))
        found = sum(error < FOUND for error in errors)
        yield Row(problem.title(), library, found, len(seeds), median(times))


def section(rows: list[Row], day: str) -> str:
    """The part of the page."""
    lines = [
        TITLE,
        "",
        "Random networks, of which a tenth of the entries is seen, found again: the rest is off by "
        "less than a per cent.",
        f"How many of the seeds {SEEDS[0]} to {SEEDS[-1]} (or of the first few), and the median time "
        "on one core. `complete` runs with",
        "its defaults, up to 20 starts. TensorLy's masked `parafac` has up to 10 random starts of "
        "1,000 sweeps, tntorch's `optimize`",
        "up to 3 of 1,000 steps of Adam, the best of them by what was seen. The lower half, for "
        "`complete` alone, has fewer",
        f"entries for each number that is to be found. Measured on {day} by "
        "`python -m benchmarks.tensor.completion`.",
        "",
        "| tensor | " + " | ".join(LIBRARIES) + " |",
        "| --- " * (len(LIBRARIES) + 1) + "|",
    ]
    for problem in dict.fromkeys(row.problem for row in rows):
        by_library = {row.library: row for row in rows if row.problem == problem}
        cells = [
            f"{row.found} of {row.tried}, {row.seconds:.1f} s" if row else "-"
            for row in map(by_library.get, LIBRARIES)
        ]
        lines.append(f"| {problem} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.tensor.completion", description=__doc__)
    parser.add_argument("--only", choices=LIBRARIES, help="measure one, keep what others have")
    only = parser.parse_args().only
    warnings.filterwarnings("ignore")  # of the peers
    torch.set_num_threads(1)
    results = ROOT / "benchmarks/results/completion.json"
    kept = [Row(**row) for row in json.loads(results.read_text())["rows"]] if only else []
    rows = []
    asked = [(problem, peers(problem)) for problem in PROBLEMS]
    asked += [(problem, {"tensus_tn": ours}) for problem in SMALLER]
    for problem, fits in asked:
        chosen = {library: fit for library, fit in fits.items() if only in (None, library)}
        for row in run(problem, chosen, SEEDS):
            rows.append(row)
            print(row, flush=True)
        rows += [r for r in kept if r.problem == problem.title() and r.library != only]
    text = section(rows, str(date.today()))
    results.write_text(
        json.dumps({"section": text, "rows": [row._asdict() for row in rows]}, indent=1) + "\n"
    )
    page = ROOT / "docs/performance-tensor.md"
    page.write_text(page.read_text().partition(TITLE)[0].rstrip() + "\n\n" + text)


if __name__ == "__main__":
    main()
