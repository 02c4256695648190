"""The numbers that a fit is given: checked, and scaled to norm one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


def check_values(name: str, values: Tensor) -> None:
    """Raise unless `values` is a dense tensor of finite floating-point numbers."""
    if not values.is_floating_point():
        raise TypeError(f"{name} must be a floating-point tensor, got a tensor of {values.dtype}")
    if values.layout != torch.strided:
        raise TypeError(f"{name} must be a dense tensor, got {values.layout}: use to_dense()")
    if not bool(values.isfinite().all()):
        where = (~values.isfinite()).nonzero()[0].tolist()
        raise ValueError(f"{name} must be finite, got {float(values[tuple(where)])} at {where}")


def as_tensor(name: str, values: Any) -> Tensor:
    """A tensor, or a numpy array as one; anything else is a TypeError."""
    if isinstance(values, np.ndarray):
        return torch.from_numpy(values.copy())  # whatever its strides, and if it is read-only
    if not isinstance(values, Tensor):
        raise TypeError(f"{name} must be a tensor or an array, got {type(values).__name__}")
    return values


@dataclass(frozen=True)
class Scaled:
    """Numbers with norm one, in float64.

    Attributes:
        values: The numbers, divided by `norm`.
        norm: Their norm; one if all are zero.
        dtype: The dtype that they had.
        rounding: The relative error that counts as none: the rounding of the numbers, or of the fit.
    """

    values: Tensor
    norm: float
    dtype: torch.dtype
    rounding: float


def to_norm_one(values: Tensor) -> Scaled:
    """Scale numbers of any floating dtype to norm one.

    Example:
        >>> to_norm_one(torch.tensor([3.0, 4.0])).norm
        5.0
    """
    dtype, rounding = values.dtype, max(4 * torch.finfo(values.dtype).eps, 1e-10)
    values = values.detach().double()
    largest = float(values.abs().max()) or 1.0  # the squares of huge or tiny ones leave the range
    norm = largest * (float((values / largest).norm()) or 1.0)
    return Scaled(values / norm, norm, dtype, rounding)
