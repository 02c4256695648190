"""The numbers that a fit is given: checked, and scaled to norm one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


def check_values(name: str, values: Any) -> None:
    """Raise unless `values` is a dense tensor of finite floating-point numbers."""
    if not isinstance(values, Tensor) or not values.is_floating_point():
        is_tensor = isinstance(values, Tensor)
        given = f"a tensor of {values.dtype}" if is_tensor else type(values).__name__
        raise TypeError(f"{name} must be a floating-point tensor, got {given}")
    if values.layout != torch.strided:
        raise TypeError(f"{name} must be a dense tensor, got {values.layout}: use to_dense()")
    if not bool(values.isfinite().all()):
        where = (~values.isfinite()).nonzero()[0].tolist()
        raise ValueError(f"{name} must be finite, got {float(values[tuple(where)])} at {where}")


@dataclass(frozen=True)
class Scaled:
    """Numbers with norm one, in float64.

    Attributes:
        values: The numbers, divided by `norm`.
        norm: Their norm; one if all are zero.
        rounding: The relative error that counts as none: the rounding of the numbers, or of the fit.
    """

    values: Tensor
    norm: float
    rounding: float


def to_norm_one(values: Tensor) -> Scaled:
    """Scale numbers of any floating dtype to norm one.

    Example:
        >>> to_norm_one(torch.tensor([3.0, 4.0])).norm
        5.0
    """
    rounding = max(4 * torch.finfo(values.dtype).eps, 1e-10)
    values = values.detach().double()
    largest = float(values.abs().max()) or 1.0  # the squares of huge or tiny ones leave the range
    norm = largest * (float((values / largest).norm()) or 1.0)
    return Scaled(values / norm, norm, rounding)
