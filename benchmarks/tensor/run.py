"""Every task on every network: all contenders checked, tuned, then timed in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from benchmarks.tensor.peers import OURS, PEERS, Ours, Peer, UnsupportedError, Variant
from benchmarks.tensor.problem import RANK, Problem, make_problem, problems
from benchmarks.timing import Timing, measure
from tensus_tn import Dag

TOLERANCE = 2e-5  # of float32 results, relative to the largest element of the float64 ones
FULL_BATCH, QUICK_BATCH = 100_000, 500


@dataclass
class Result:
    """One row of the table: the times of all contenders for one task on one network."""

    task: str
    network: str
    goal: str = ""
    times: dict[str, Timing] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    def ratio(self, name: str) -> float:
        """How many times the time of this library a contender takes; below 1 it is faster."""
        return self.times[name].median / self.times[OURS].median

    def to_dict(self) -> dict[str, Any]:
        ratios = {name: self.ratio(name) for name in self.times}
        return asdict(self) | {"ratios": ratios}


def installed() -> tuple[dict[str, Peer], dict[str, str]]:
    """The peers that can be imported, and why the others can't."""
    present: dict[str, Peer] = {OURS: Ours()}
    absent = {}
    for name, peer in PEERS.items():
        try:
            present[name] = peer()
        except ImportError as error:
            absent[name] = f"not installed ({error})"
    return present, absent


@dataclass(frozen=True)
class Task:
    """A question to all contenders: the method of `Peer`, with or without the backward pass."""

    title: str
    method: str
    backward: bool = False
    goals: Mapping[str, str] = field(default_factory=dict)

    def timed(self, variant: Variant, problem: Problem) -> Callable[[], Any]:
        """What is timed: the call without gradients, or the call and its gradients."""
        if self.backward:
            return lambda: torch.autograd.grad(variant.call(), variant.leaves, problem.weights)
        return torch.no_grad()(variant.call)


TASKS = (
    Task(
        "entries, forward",
        "entries",
        goals={"path": "at least 5 times", "complete": "at least 3 times"},
    ),
    Task(
        "entries, forward and backward",
        "entries",
        backward=True,
        goals={"path": "at least 12 times", "complete": "at least 5 times"},
    ),
    Task("one entry, cached plan", "entry", goals={"path": "at most 45 us"}),
    Task("sum of all entries", "sum", goals={"complete": "no slower than cotengra"}),
    Task("plan of the sum", "plan"),
)


def run(*, quick: bool = False, seconds: float = 5.0) -> Iterator[Result]:
    """Yield the rows of the table, one task after the other."""
    present, absent = installed()
    for problem in problems(QUICK_BATCH if quick else FULL_BATCH):
        for task in TASKS:
            yield _run_task(task, problem, present, absent, seconds)
    yield _run_decompose(present, absent, seconds, length=4 if quick else 7)


def _run_task(
    task: Task, problem: Problem, present: dict[str, Peer], absent: dict[str, str], seconds: float
) -> Result:
    kind = problem.name.split(",")[0]
    result = Result(task.title, problem.name, task.goals.get(kind, ""), absent=dict(absent))
    calls = {}
    for name, peer in present.items():
        try:
            calls[name], error = fastest_call(name, peer, task, problem, min(seconds, 0.2))
        except UnsupportedError as reason:
            result.absent[name] = str(reason)
            continue
        if error is not None:
            result.errors[name] = error
    result.times = measure(calls, seconds=seconds)
    return result


def fastest_call(
    name: str, peer: Peer, task: Task, problem: Problem, seconds: float = 0.2
) -> tuple[Callable[[], Any], float | None]:
    """The fastest variant of a contender, and the largest error of all; plans have no result."""
    variants = list(getattr(peer, task.method)(problem))
    error = None
    if task.method != "plan":
        error = max(_check(name, task, variant, problem) for variant in variants)
    calls = {str(n): task.timed(variant, problem) for n, variant in enumerate(variants)}
    if len(calls) == 1:
        return calls["0"], error
    times = measure(calls, seconds=seconds, least_rounds=3)
    return calls[min(times, key=lambda n: times[n].low)], error


def _check(name: str, task: Task, variant: Variant, problem: Problem) -> float:
    """The largest relative error of the result and the gradients; raises where it is too large."""
    result = variant.call()
    actual = [result.reshape(problem.expected[task.method][0].shape)]
    if task.backward:
        gradients = torch.autograd.grad(result, variant.leaves, problem.weights)
        cores = zip(variant.to_cores(gradients), problem.cores, strict=True)
        actual += [g.reshape(core.shape) for g, core in cores]
    pairs = zip(actual, problem.expected[task.method], strict=False)
    error = max(relative_error(x.detach().double(), right) for x, right in pairs)
    if not error < TOLERANCE:
        raise AssertionError(f"{name}, {task.title}, {problem.name}: relative error {error:.1e}")
    return error


def relative_error(actual: Tensor, right: Tensor) -> float:
    return float((actual - right).abs().max() / right.abs().max())


def noisy_train(length: int) -> Tensor:
    """A dense tensor of a random tensor train of rank 4 with one per cent of noise."""
    cores = make_problem("", Dag.path(length), 1).cores
    dense = cores[0].squeeze(1)
    for core in cores[1:]:
        dense = torch.tensordot(dense, core, dims=([-1], [1]))
    dense = dense.squeeze(-1)
    noise = torch.randn(dense.shape, generator=torch.Generator().manual_seed(2))
    return dense + 0.01 * noise * dense.std()


def _run_decompose(
    present: dict[str, Peer], absent: dict[str, str], seconds: float, length: int
) -> Result:
    """Times of a tensor train of rank 4, with the relative error of each in the Frobenius norm."""
    dense = noisy_train(length)
    result = Result(
        "decompose", f"path, {length} cores, rank {RANK}, noise 1 %", absent=dict(absent)
    )
    calls = {}
    for name, peer in present.items():
        try:
            call = torch.no_grad()(peer.decompose(dense))
        except UnsupportedError as reason:
            result.absent[name] = str(reason)
            continue
        result.errors[name] = float((call() - dense).norm() / dense.norm())
        if not result.errors[name] < 0.02:
            raise AssertionError(f"{name} decomposes with an error of {result.errors[name]:.3f}")
        calls[name] = call
    result.times = measure(calls, seconds=seconds, least_rounds=3) if OURS in calls else {}
    return result
