"""The laws of each semiring, on numbers."""

import pytest
import torch

from tensus_tn.network.semiring import LOG_SUM_EXP, MAX_PRODUCT, SUM_PRODUCT, log_sum_exp

SEMIRINGS = [SUM_PRODUCT, LOG_SUM_EXP, MAX_PRODUCT]


@pytest.mark.parametrize("semiring", SEMIRINGS, ids=lambda s: s.name)
def test_laws(semiring):
    a, b, c = torch.rand(3, 5, dtype=torch.float64)
    close = torch.testing.assert_close
    close(semiring.multiply(a, torch.full_like(a, semiring.one)), a)
    close(semiring.add(a, b), semiring.reduce(torch.stack([a, b]), (0,)))
    left = semiring.multiply(a, semiring.add(b, c))
    close(left, semiring.add(semiring.multiply(a, b), semiring.multiply(a, c)))


def test_log_sum_exp_is_the_logarithm_of_sum_product():
    x, y = torch.rand(2, 4, 5, dtype=torch.float64)
    close = torch.testing.assert_close
    close(LOG_SUM_EXP.multiply(x.log(), y.log()).exp(), SUM_PRODUCT.multiply(x, y))
    close(LOG_SUM_EXP.reduce(x.log(), (0, 1)).exp(), SUM_PRODUCT.reduce(x, (0, 1)))


@pytest.mark.parametrize("dims", [(0,), (1,), (0, 2), (0, 1, 2)])
def test_derivatives_of_log_sum_exp_where_some_or_all_summands_are_zero(dims):
    """Against the logarithm of the sum of exponentials, where that is not zero; zero elsewhere."""
    x = torch.randn(3, 4, 2, dtype=torch.float64)
    x[torch.rand(x.shape) < 0.5] = -float("inf")
    x[0], x[:, 1] = -float("inf"), -float("inf")
    total = x.exp().sum(dims)
    torch.testing.assert_close(log_sum_exp(x, dims), total.log())
    weights = torch.rand(total.shape, dtype=torch.float64)
    shares = x.exp() * (weights / total).nan_to_num(posinf=0).reshape(
        [1 if d in dims else size for d, size in enumerate(x.shape)]
    )

    def weighted(x):
        return torch.where(total > 0, weights * log_sum_exp(x, dims), 0.0).sum()

    leaf = x.clone().requires_grad_()
    torch.testing.assert_close(log_sum_exp(leaf, dims).detach(), total.log())
    (backwards,) = torch.autograd.grad((weights * log_sum_exp(leaf, dims)).sum(), leaf)
    torch.testing.assert_close(backwards, shares)
    torch.testing.assert_close(torch.func.grad(weighted)(x), shares)
    torch.testing.assert_close(torch.func.jacfwd(weighted)(x), shares)


def test_second_derivatives_of_log_sum_exp():
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: log_sum_exp(x, (0,)), [x])
