"""The same tasks with pytest-benchmark: `pytest benchmarks --benchmark-enable`."""

import pytest
import torch

from benchmarks.tensor.peers import UnsupportedError
from benchmarks.tensor.problem import problems
from benchmarks.tensor.run import FULL_BATCH, TASKS, fastest_call, installed

PRESENT, _ = installed()


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module", params=range(2), ids=["path", "complete"])
def problem(request):
    return problems(FULL_BATCH)[request.param]


@pytest.mark.parametrize("name", PRESENT)
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.title)
def test_task(benchmark, problem, task, name):
    benchmark.group = f"{task.title}, {problem.name}"
    try:
        call, _ = fastest_call(name, PRESENT[name], task, problem)
    except UnsupportedError as reason:
        pytest.skip(str(reason))
    benchmark(call)
