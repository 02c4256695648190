"""The laws of each semiring, on numbers."""

import pytest
import torch

from tensus_tn.network.semiring import LOG_SUM_EXP, MAX_PRODUCT, SUM_PRODUCT

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
