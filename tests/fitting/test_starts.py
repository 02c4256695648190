"""Where a fit begins: singular vectors, random cores, or a network."""

from itertools import islice

import pytest
import torch

from tensus_tn import Dag, DagTensor
from tensus_tn.fitting.dense_fit import DenseFit
from tensus_tn.fitting.settings import Settings
from tensus_tn.fitting.starts import make_starts, mode_svd, tt_svd
from tensus_tn.fitting.values import to_norm_one
from tests.fitting.test_settings import GOOD


def free(dag, choices, rank, seed=0, **options):
    options = {"parametrization": "free", "dtype": torch.float64} | options
    return DagTensor(dag, choices, rank, **options, generator=torch.Generator().manual_seed(seed))


def starts(tensor, dense, init, **change):
    data, settings = to_norm_one(dense), Settings(**(GOOD | change))
    found = make_starts(tensor, data.values, data, init, frozenset(), settings)
    return list(islice(found, settings.restarts))


def test_tt_svd_follows_the_path_and_not_the_order_of_the_edges():
    mixed = Dag([(2, 3), (0, 1), (1, 2)])
    choices = {(2, 3): 3, (0, 1): 4, (1, 2): 5}
    tensor = free(mixed, choices, {1: 2, 2: 3}, seed=5)
    dense = tensor.to_dense().detach()
    cores = tt_svd(tensor.structure, dense)
    assert DenseFit(tensor.structure, dense).error(cores) < 1e-12 * dense.norm()


@pytest.mark.parametrize("shape", [(3, 4, 5), (30, 4, 5), (3, 40, 2), (2, 2, 2, 2, 2, 2)])
def test_tt_svd_is_as_good_as_that_of_tensorly(tensorly, shape):
    """Wide unfoldings go through their Gram matrix, others through an SVD."""
    dense = torch.randn(shape, dtype=torch.float64)
    train = tensorly.decomposition.tensor_train(dense, [1, *[2] * (len(shape) - 1), 1])
    tensor = DagTensor.tensor_train(shape, 2)
    error = DenseFit(tensor.structure, dense).error(tt_svd(tensor.structure, dense))
    assert error == pytest.approx(float((train.to_tensor() - dense).norm()), rel=1e-9)


def test_mode_svd_spans_what_each_unfolding_spans():
    tensor = free(Dag.path(3), [4, 5, 6], 3, ties="global")
    cores = mode_svd(tensor.structure, tensor.to_dense().detach())
    for core, factor in zip(cores, tensor.cores().values(), strict=True):
        torch.testing.assert_close(core.t() @ core, torch.eye(3, dtype=torch.float64))
        factor = factor.detach().flatten(1)
        torch.testing.assert_close(core @ (core.t() @ factor), factor)


def test_mode_svd_with_more_states_than_choices_repeats_no_state():
    tensor = free(Dag.complete(3), 2, 3)
    cores = mode_svd(tensor.structure, torch.randn(tensor.shape, dtype=torch.float64))
    for core, shape in zip(cores, tensor.structure.operand_shapes, strict=True):
        assert core.shape == shape
        states = core.flatten(1).t() if core.ndim > 1 else core[None]
        assert len({tuple(state.tolist()) for state in states}) == len(states)


def test_random_starts_follow_the_seed():
    dense = torch.ones(3, 3, 3)
    first, again, other = (
        starts(free(Dag.complete(2), 3, 2), dense, "random", restarts=2, seed=seed)
        for seed in (1, 1, 2)
    )
    assert len(first) == 2
    assert all(map(torch.equal, first[1], again[1]))
    assert not torch.equal(first[0][0], first[1][0])
    assert not torch.equal(first[0][0], other[0][0])


def test_a_network_to_start_from_comes_first():
    truth = free(Dag.complete(2), 3, 2, seed=1)
    dense = 5 * truth.to_dense().detach()
    scaled = to_norm_one(dense)
    first, second = starts(free(Dag.complete(2), 3, 2), dense, truth, restarts=2)
    problem = DenseFit(truth.structure, scaled.values)
    torch.testing.assert_close(problem.model(*first), truth.to_dense().detach() / scaled.norm)
    assert not torch.equal(first[0], second[0])
    with pytest.raises(ValueError, match="init must be like the result"):
        starts(free(Dag.complete(2), 3, 1), dense, truth)


def test_what_init_may_be():
    tensor, dense = free(Dag.path(3), 3, 2), torch.randn(3, 3, 3)
    assert all(map(torch.equal, starts(tensor, dense, None)[0], starts(tensor, dense, "svd")[0]))
    cp = free(Dag.path(3), 3, 2, ties="global")
    assert all(map(torch.equal, starts(cp, dense, None)[0], starts(cp, dense, "random")[0]))
    with pytest.raises(ValueError, match="init must be 'svd', 'random' or a DagTensor, got 'ones'"):
        starts(tensor, dense, "ones")
    data = to_norm_one(dense)
    with pytest.raises(ValueError, match="'svd' needs a dense tensor"):
        list(islice(make_starts(tensor, None, data, "svd", frozenset(), Settings(**GOOD)), 1))
