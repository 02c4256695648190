"""Many starts side by side: each takes the steps that it would take alone, and the best is left."""

from __future__ import annotations

from itertools import count, islice

import pytest
import torch

from tensus_tn import Dag, DagTensor
from tensus_tn.fitting.observed_fit import ObservedFit
from tensus_tn.fitting.trials import _Trials, best_of, with_trials
from tests.fitting.test_dense_fit import jacobian_of
from tests.network.networks import operands


def problem(dag=None, ties="node", dtype=torch.float64):
    dag = dag or Dag.complete(3)
    options = {"parametrization": "free", "ties": ties, "dtype": dtype}
    tensor = DagTensor(dag, 3, 2, **options, generator=torch.Generator().manual_seed(0))
    dense = tensor.to_dense().detach()
    rows = (torch.rand(dense.shape, generator=torch.Generator().manual_seed(1)) < 0.5).nonzero()
    values = dense[tuple(rows.t())]
    return ObservedFit(rows, tensor.structure, values / values.norm()), tensor


def random_starts(tensor, seed=1):
    generator = torch.Generator().manual_seed(seed)
    while True:
        tensor.reset_parameters(generator)
        yield [core.detach().clone() / 2 for core in operands(tensor)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize(
    ("dag", "ties"), [(Dag.path(3), "global"), (Dag.complete(3), "node"), (Dag.path(1), "node")]
)
def test_the_derivative_of_the_residual(dag, ties, dtype):
    fit, tensor = problem(dag, ties, dtype)
    cores = next(random_starts(tensor))
    residual, jacobian = fit.linearize(cores)
    torch.testing.assert_close(residual, fit.residual(cores))
    blocks = [jacobian_of(fit, cores, e) for e in fit.edges]
    torch.testing.assert_close(jacobian, torch.cat(blocks, dim=1))


def test_trials_do_not_see_each_other_and_only_go_down():
    fit, tensor = problem()
    starts = list(islice(random_starts(tensor), 4))
    together = _Trials(fit, [torch.stack(cores) for cores in zip(*starts, strict=True)])
    alone = [_Trials(fit, [core[None] for core in start]) for start in starts]
    errors = together.errors
    for _ in range(3):
        together.step(2)
        assert bool((together.errors <= errors).all())
        errors = together.errors
        for k, trial in enumerate(alone):
            trial.step(2)
            torch.testing.assert_close(trial.errors[0], errors[k])
    for k in range(4):
        cores = [core[k] for core in together.cores]
        assert fit.error(cores) == pytest.approx(float(errors[k]))
    together.keep(2)
    torch.testing.assert_close(together.errors, errors.sort().values[:2])


def test_the_best_is_left():
    fit, tensor = problem()
    exact = [core.detach() for core in operands(problem()[1])]
    scaled = [exact[0] / (tensor[fit.rows].detach().norm()), *exact[1:]]
    starts = list(islice(random_starts(tensor), 3))
    assert fit.error(best_of(fit, [*starts, scaled])) < 1e-9


def test_every_other_start_is_the_best_of_many(monkeypatch):
    monkeypatch.setattr("tensus_tn.fitting.trials.best_of", lambda problem, starts: starts)
    fit, tensor = problem()
    shapes = [core.detach() for core in operands(tensor)]

    def numbered():
        return ([core * k for core in shapes] for k in count(1))

    first, tried, third, *rest = islice(with_trials(fit, numbered()), 14)
    torch.testing.assert_close(first[0], shapes[0])
    assert len(tried) == 16
    torch.testing.assert_close(third[0], 18 * shapes[0])
    assert [len(many) for many in rest[::2]] == [32, 64, 128, 256, 256, 256]
    size = len(fit.rows) * sum(core.numel() for core in shapes)
    monkeypatch.setattr("tensus_tn.fitting.trials._LARGEST", 20 * size)
    assert [len(many) for many in islice(with_trials(fit, numbered()), 1, 6, 2)] == [16, 20, 20]
    monkeypatch.setattr("tensus_tn.fitting.trials._LARGEST", 10)
    for k, start in enumerate(islice(with_trials(fit, numbered()), 4), 1):
        torch.testing.assert_close(start[0], k * shapes[0])
