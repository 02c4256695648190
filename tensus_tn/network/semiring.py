"""The arithmetic that a contraction is run in: how to multiply, and how to add up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from tensus_tn._torch_modes import may_be_differentiated


@dataclass(frozen=True)
class Semiring:
    """How to multiply, how to add up, and whether a matrix product does both at once.

    Attributes:
        name: What the programs of a plan are kept by.
        multiply: The product of two tensors, by broadcasting.
        reduce: The sum over some dimensions of a tensor.
        add: The sum of two tensors.
        one: The neutral element of the product.
        has_matmul: Whether `torch.matmul` and `torch.einsum` compute sums of products.
    """

    name: str
    multiply: Callable[[Tensor, Tensor], Tensor]
    reduce: Callable[[Tensor, tuple[int, ...]], Tensor]
    add: Callable[[Tensor, Tensor], Tensor]
    one: float
    has_matmul: bool = False


def log_sum_exp(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """`log sum exp x` over some dimensions; minus infinity is the logarithm of a zero like any other.

    Where all summands are zero, so is the sum, and its gradient is zero too; that of
    `torch.logsumexp` is NaN there.

    Example:
        >>> x = torch.tensor([[-inf, -inf], [0.0, -inf]], requires_grad=True)
        >>> y = log_sum_exp(x, (1,))
        >>> y.tolist(), torch.autograd.grad(y.sum(), x)[0].tolist()
        ([-inf, 0.0], [[0.0, 0.0], [1.0, 0.0]])
    """
    if not may_be_differentiated(x):
        return torch.logsumexp(x, dims)  # the same value in fewer calls
    peak = x.detach().amax(dims, keepdim=True)
    is_zero = peak == -inf
    total = (x - peak.masked_fill(is_zero, 0.0)).exp().sum(dims, keepdim=True)
    # A total of zero becomes one: its logarithm adds nothing to the peak, and has a derivative.
    return ((total + is_zero).log() + peak).squeeze(dims)


def _log_add_exp(x: Tensor, y: Tensor) -> Tensor:
    return log_sum_exp(torch.stack([x, y]), (0,))


SUM_PRODUCT = Semiring("sum-product", torch.mul, torch.sum, torch.add, 1.0, has_matmul=True)
LOG_SUM_EXP = Semiring("log-sum-exp", torch.add, log_sum_exp, _log_add_exp, 0.0)
MAX_PRODUCT = Semiring("max-product", torch.mul, torch.amax, torch.maximum, 1.0)
