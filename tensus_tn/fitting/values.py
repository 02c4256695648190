"""The numbers that a fit is given: checked, and scaled to norm one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


def check_values(name: str, values: Tensor) -> None:
    """Raise unless `values` is a dense tensor of finite floating-point or complex numbers."""
    if not (values.is_floating_point() or values.is_complex()):
        raise TypeError(
            f"{name} must be a floating-point or complex tensor, got a tensor of {values.dtype}"
        )
    if values.layout != torch.strided:
        raise TypeError(f"{name} must be a dense tensor, got {values.layout}: use to_dense()")
    if not bool(values.isfinite().all()):
        where = (~values.isfinite()).nonzero()[0].tolist()
        raise ValueError(f"{name} must be finite, got {values[tuple(where)].item()} at {where}")


def check_real(name: str, values: Tensor) -> None:
    """Raise if `values` are complex numbers."""
    if values.is_complex():
        raise TypeError(f"{name} must be real numbers here, got {values.dtype}")


def as_tensor(name: str, values: Any) -> Tensor:
    """A tensor, or a numpy array as one; anything else is a TypeError."""
    if isinstance(values, np.ndarray):
        return torch.from_numpy(values.copy())  # whatever its strides, and if it is read-only
    if not isinstance(values, Tensor):
        raise TypeError(f"{name} must be a tensor or an array, got {type(values).__name__}")
    return values


def read_coordinates(sparse: Any) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """The indices `(N, M)`, the values `(N,)` and the shape of a sparse tensor in coordinates.

    It may be one of torch, or of the package `sparse`, which TensorLy uses.

    Example:
        >>> index, values, shape = read_coordinates(torch.tensor([[0.0, 5.0]]).to_sparse())
        >>> index.tolist(), values.tolist(), shape
        ([[0, 1]], [5.0], (1, 2))
    """
    if isinstance(sparse, Tensor) and sparse.layout == torch.sparse_coo and not sparse.dense_dim():
        sparse = sparse.detach().coalesce()
        return sparse.indices().t(), sparse.values(), tuple(sparse.shape)
    if hasattr(sparse, "coords") and hasattr(sparse, "data"):
        index = torch.from_numpy(np.stack(sparse.coords, axis=1).astype(np.int64))
        return index, as_tensor("values", sparse.data), tuple(sparse.shape)
    raise TypeError(
        f"without values, index must be a sparse tensor in coordinates, got {_kind(sparse)}"
    )


def _kind(given: Any) -> str:
    return f"a tensor of {given.layout}" if isinstance(given, Tensor) else type(given).__name__


@dataclass(frozen=True)
class Scaled:
    """Numbers with norm one, in float64 or complex128.

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
    """Scale numbers of any floating or complex dtype to norm one.

    Example:
        >>> to_norm_one(torch.tensor([3.0, 4.0])).norm
        5.0
    """
    dtype, rounding = values.dtype, max(4 * torch.finfo(values.dtype).eps, 1e-10)
    values = values.detach().to(torch.complex128 if dtype.is_complex else torch.float64)
    largest = float(values.abs().max()) or 1.0  # the squares of huge or tiny ones leave the range
    norm = largest * (float((values / largest).norm()) or 1.0)
    return Scaled(values / norm, norm, dtype, rounding)
