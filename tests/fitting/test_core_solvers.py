"""The best core from its normal equations, against least squares by other means."""

import pytest
import torch
from scipy.optimize import nnls

from tensus_tn.fitting.core_solvers import solve_core, solve_nonnegative_core


def generator(seed):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("rank", [1, 3, 5])
def test_against_least_squares(rank, dtype):
    environment = torch.randn(rank, 20, generator=generator(0), dtype=dtype)
    data = torch.randn(4, 20, generator=generator(1), dtype=dtype)
    expected = torch.linalg.lstsq(environment.mT, data.mT).solution.mT
    gram, projection = environment @ environment.mH, data @ environment.mH
    torch.testing.assert_close(solve_core(gram[None], projection), expected)
    torch.testing.assert_close(solve_core(gram.expand(4, -1, -1), projection), expected)


def test_each_row_may_have_a_matrix_of_its_own():
    grams = torch.stack([torch.eye(2) * k for k in (1.0, 2.0, 4.0)])
    core = solve_core(grams, torch.ones(3, 2))
    torch.testing.assert_close(core, torch.tensor([[1.0], [0.5], [0.25]]).expand(3, 2))


def test_what_the_data_do_not_determine_is_zero():
    gram = torch.diag(torch.tensor([4.0, 0.0], dtype=torch.float64))
    projection = torch.tensor([[8.0, 0.0], [4.0, 0.0]], dtype=torch.float64)
    expected = torch.tensor([[2.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(solve_core(gram[None], projection), expected)
    twins = torch.ones(2, 2, dtype=torch.float64)  # two states that are the same share the weight
    torch.testing.assert_close(
        solve_core(twins[None], twins), torch.full((2, 2), 0.5, dtype=torch.float64)
    )


@pytest.mark.parametrize("seed", range(5))
def test_nonnegative_against_the_active_set_method(seed, monkeypatch):
    monkeypatch.setattr("tensus_tn.fitting.core_solvers._ROUNDS", 2000)
    monkeypatch.setattr("tensus_tn.fitting.core_solvers._SMALL_CHANGE", 1e-12)
    environment = torch.randn(4, 30, generator=generator(seed), dtype=torch.float64)
    data = torch.randn(5, 30, generator=generator(seed + 100), dtype=torch.float64)
    expected = torch.stack([torch.from_numpy(nnls(environment.mT.numpy(), x)[0]) for x in data])
    gram, projection = environment @ environment.mT, data @ environment.mT
    start = torch.rand(5, 4, generator=generator(9), dtype=torch.float64)
    for grams in (gram[None], gram.expand(5, -1, -1)):
        core = solve_nonnegative_core(grams, projection, start)
        torch.testing.assert_close(core, expected)
    assert (expected == 0).any()


def test_a_state_without_data_keeps_its_core():
    gram = torch.diag(torch.tensor([2.0, 0.0]))
    core = solve_nonnegative_core(gram[None], torch.tensor([[4.0, 0.0]]), torch.ones(1, 2))
    assert core.tolist() == [[2.0, 1.0]]
