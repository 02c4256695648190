"""Several starts: the best is kept, an exact one ends the search, a callback may too."""

import pytest
import torch

from tensus_tn import Dag, DagTensor
from tensus_tn.fitting.dense_fit import DenseFit
from tensus_tn.fitting.restarts import fit_best
from tensus_tn.fitting.settings import Settings
from tensus_tn.fitting.values import Scaled
from tests.fitting.test_settings import GOOD
from tests.network.networks import operands


def network(seed=0):
    options = {"parametrization": "free", "dtype": torch.float64}
    return DagTensor(
        Dag.complete(2), 3, 2, **options, generator=torch.Generator().manual_seed(seed)
    )


def fit(starts, noise=0.0, **change):
    """Fit the network of seed 1 with noise, as data of norm 8 and dtype float32."""
    dense = network(1).to_dense().detach() + noise * torch.randn(3, 3, 3, dtype=torch.float64)
    data = Scaled(dense, 8.0, torch.float32, 1e-9)
    tensor = network(2)
    settings = Settings(**(GOOD | {"max_sweeps": 1, "restarts": len(starts)} | change))
    report = fit_best(tensor, DenseFit(tensor.structure, dense), starts, data, settings)
    return tensor, report, 8 * dense


def test_an_exact_start_ends_the_search_and_fills_the_network():
    exact = operands(network(1))
    poor = [torch.zeros_like(core) for core in exact]
    tensor, report, dense = fit([poor, exact, poor])
    assert report.restarts == 2
    assert report.converged
    torch.testing.assert_close(tensor.to_dense(), dense.float())


def test_the_best_of_poor_starts_is_kept():
    good, bad = operands(network(3)), [torch.zeros_like(core) for core in operands(network(1))]
    errors = [fit(starts)[1].error for starts in ([good], [bad], [bad, good], [good, bad])]
    assert errors[0] == errors[2] == errors[3] < errors[1]


def test_the_callback_sees_every_sweep_and_can_stop():
    seen, models = [], []

    def callback(tensor, error):
        seen.append(error)
        models.append(tensor.to_dense().detach())
        return len(seen) == 3

    start = [operands(network(3))]
    _, report, dense = fit(start, noise=1.0, max_sweeps=10, callback=callback)
    assert seen == list(report.errors[1:])
    for model, error in zip(models, seen, strict=True):
        assert float((model - dense).norm()) / 8 == pytest.approx(error)
    assert len(seen) == 3
    assert not report.converged
