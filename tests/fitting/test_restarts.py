"""Several starts: the best is kept, and an exact one ends the search."""

import pytest
import torch

from tensus_tn import Dag, DagTensor
from tensus_tn.fitting.dense import DenseFit
from tensus_tn.fitting.least_squares import Descent
from tensus_tn.fitting.restarts import Restarts, best_run, fill, random_starts
from tests.network.networks import operands


def network(seed=0):
    options = {"parametrization": "free", "dtype": torch.float64}
    return DagTensor(
        Dag.complete(2), 3, 2, **options, generator=torch.Generator().manual_seed(seed)
    )


def test_starts_follow_the_seed():
    first, again, other = (
        list(random_starts(network(), 27, Restarts(2, seed, None))) for seed in (1, 1, 2)
    )
    assert len(first) == 2
    assert all(map(torch.equal, first[1], again[1]))
    assert not torch.equal(first[0][0], first[1][0])
    assert not torch.equal(first[0][0], other[0][0])


def test_an_exact_start_ends_the_search_and_fills_the_network():
    truth, tensor = network(1), network(2)
    dense = truth.to_dense().detach()
    problem = DenseFit(truth.structure, dense)
    poor = [torch.zeros_like(core) for core in operands(truth)]
    descent, restarts = Descent("als", 1e-6, 1), Restarts(3, 0, None)
    run, tried = best_run(problem, [poor, operands(truth), poor], descent, restarts, 1e-9)
    assert tried == 2
    assert run.converged
    fill(tensor, run, 8.0, torch.float32)
    torch.testing.assert_close(tensor.to_dense(), 8 * dense.float())
    assert tensor.dtype == torch.float32


def test_bad_number():
    with pytest.raises(ValueError, match="restarts must be a positive integer"):
        Restarts(0, 0, None)
