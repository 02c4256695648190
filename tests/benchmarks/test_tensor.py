"""The tensor benchmark runs, and every contender that is installed agrees with float64."""

import pytest
import torch

from benchmarks.tensor import run as benchmark
from benchmarks.tensor.peers import OURS, Ours, Variant
from benchmarks.tensor.problem import problems
from benchmarks.tensor.report import page
from benchmarks.timing import machine_facts, measure


@pytest.fixture(scope="module")
def results():
    tensorly = pytest.importorskip("tensorly")
    with tensorly.backend_context("pytorch"):  # the benchmark sets it for good: here it is put back
        yield list(benchmark.run(quick=True, seconds=0.01))


def test_every_task_is_measured_and_agrees(results):
    assert {r.task for r in results} == {task.title for task in benchmark.TASKS} | {"decompose"}
    for result in results:
        # opt_einsum is a dependency of the library: at least one peer always takes part
        assert "opt_einsum" in result.times or result.task == "decompose"
        checked = set() if result.task.startswith("plan") else set(result.times)
        assert set(result.errors) == checked
        assert not set(result.times) & set(result.absent)
        limit = 0.02 if result.task == "decompose" else benchmark.TOLERANCE
        assert all(error < limit for error in result.errors.values())
        assert all(0 < t.low <= t.median <= t.high for t in result.times.values())


def test_page_shows_each_ratio_and_the_absent(results):
    text = page(results, machine_facts(["torch"]), 500)
    for result in results:
        for name in set(result.times) - {OURS}:
            assert f"{result.ratio(name):.{1 if result.ratio(name) >= 1 else 2}f} x" in text
        for reason in result.absent.values():
            assert reason in text


@pytest.mark.parametrize("wrong", ["result", "gradient"])
def test_a_wrong_contender_is_refused(wrong):
    problem = problems(20)[0]
    (right,) = Ours().entries(problem)
    task = benchmark.TASKS[1]
    assert benchmark._check("right", task, right, problem) < benchmark.TOLERANCE
    if wrong == "result":
        bad = Variant(lambda: right.call() * 1.001, right.leaves)
    else:
        bad = Variant(right.call, right.leaves, lambda gs: [gs[0] * 1.001, *gs[1:]])
    with pytest.raises(AssertionError, match="relative error"):
        benchmark._check("wrong", task, bad, problem)


def test_measure_interleaves_and_counts():
    order: list[str] = []
    times = measure(
        {name: lambda name=name: order.append(name) or torch.ones(10**5).sum() for name in "ab"},
        seconds=0.0,
        least_rounds=4,
        least_time=0.0,
    )
    assert {t.rounds for t in times.values()} == {4}
    assert order[-8:] == ["a", "b"] * 4
