"""Ways down a sum of squares: where they stop."""

import pytest
import torch

from tensus_tn import Dag, DagTensor
from tensus_tn.fitting.dense_fit import DenseFit
from tensus_tn.fitting.least_squares import descend
from tensus_tn.fitting.settings import Settings
from tests.fitting.test_settings import GOOD
from tests.network.networks import operands


def run(**change):
    generator = torch.Generator().manual_seed(0)
    dense = torch.randn(4, 4, 4, 4, generator=generator, dtype=torch.float64)
    options = {"parametrization": "free", "dtype": torch.float64, "generator": generator}
    tensor = DagTensor(Dag.path(4), 4, 2, ties="global", **options)
    start = [core.detach() for core in operands(tensor)]
    settings = Settings(**(GOOD | {"max_sweeps": 300} | change))
    problem = DenseFit(tensor.structure, dense / dense.norm())
    return descend(problem, start, settings, 1e-12, lambda cores, error: False)


@pytest.mark.parametrize("method", ["als", "gradient"])
def test_a_run_ends_when_sweeps_lower_the_error_by_less_than_tol(method):
    for tol in (1e-2, 1e-4):
        result = run(method=method, tol=tol)
        gains = [a - b for a, b in zip(result.errors, result.errors[1:], strict=False)]
        assert result.converged
        assert gains[-1] <= tol * 3
        assert all(gain > tol for gain in gains[:1])
    assert len(run(method=method, tol=1e-2).errors) < len(run(method=method, tol=1e-6).errors)


def test_a_large_fit_alternates_until_one_sweep_gains_less_than_tol(monkeypatch):
    monkeypatch.setattr("tensus_tn.fitting.least_squares._MOST_PARAMETERS", 0)
    result = run(tol=1e-3)
    gains = [a - b for a, b in zip(result.errors, result.errors[1:], strict=False)]
    assert gains[-1] <= 1e-3
    assert all(gain > 1e-3 for gain in gains[:-1])
