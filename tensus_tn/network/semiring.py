"""The arithmetic that a contraction is run in: how to multiply, and how to add up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


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


SUM_PRODUCT = Semiring("sum-product", torch.mul, torch.sum, torch.add, 1.0, has_matmul=True)
LOG_SUM_EXP = Semiring("log-sum-exp", torch.add, torch.logsumexp, torch.logaddexp, 0.0)
MAX_PRODUCT = Semiring("max-product", torch.mul, torch.amax, torch.maximum, 1.0)
