"""Where an entry is: one integer for each edge, or a batch of rows of them, checked before any work."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tensus_tn._torch_modes import is_mapped


def is_batch(index: Any) -> bool:
    """Whether an index is one of many entries: a tensor, an array or a list with rows."""
    if isinstance(index, (Tensor, np.ndarray)):
        return index.ndim != 1
    return (
        isinstance(index, (list, tuple))
        and len(index) > 0
        and isinstance(index[0], (list, tuple, np.ndarray))
    )


def check_entry(index: Any, shape: Sequence[int]) -> list[int]:
    """One index as non-negative integers; negative ones count from the end, as in Python."""
    if isinstance(index, Tensor):
        _check_index(index)
    entry = index.tolist() if isinstance(index, (Tensor, np.ndarray)) else index
    entry = list(entry) if isinstance(entry, (list, tuple)) else [entry]
    if len(entry) != len(shape):
        raise ValueError(
            f"an index has {len(shape)} integers, one an edge, got {len(entry)}: {index}"
        )
    for axis, (value, size) in enumerate(zip(entry, shape, strict=True)):
        if type(value) is not int:
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                raise TypeError(f"an index has integers, got {value!r} on axis {axis}")
            value = operator.index(value)
        if not -size <= value < size:
            raise ValueError(f"index {value} on axis {axis} is out of range for {size} choices")
        entry[axis] = value % size
    return entry


def check_rows(index: Tensor, shape: Sequence[int]) -> Tensor:
    """A batch `(..., M)` of indices as rows `(B, M)` of non-negative integers."""
    _check_index(index)
    if index.ndim == 0 or index.shape[-1] != len(shape):
        raise ValueError(f"expected an index (..., {len(shape)}), got {tuple(index.shape)}")
    rows = index.reshape(-1, len(shape)).long()
    if index.dtype == torch.uint64:
        rows = rows.masked_fill(rows < 0, torch.iinfo(torch.long).max)  # too large, not negative
    sizes = torch.tensor(shape, device=rows.device)
    if torch.compiler.is_compiling():
        inside = ((rows >= -sizes) & (rows < sizes)).all()
        torch._assert_async(inside, "an index is out of range")
        # Clamped, because a lookup out of range ends the process inside a compiled parallel loop.
        return torch.where(rows < 0, rows + sizes, rows).clamp_min(0).minimum(sizes - 1)
    if rows.numel() == 0:
        return rows
    lowest, highest = (int(x) for x in rows.aminmax())
    if lowest >= 0 and highest < min(shape):
        return rows  # the common case, one pass over the index
    outside = ((rows < -sizes) | (rows >= sizes)).nonzero()
    if len(outside):
        row, axis = outside[0].tolist()
        raise ValueError(
            f"index {int(rows[row, axis])} on axis {axis} of row {row} is out of range for "
            f"{shape[axis]} choices"
        )
    return torch.where(rows < 0, rows + sizes, rows)


def _check_index(index: Tensor) -> None:
    if not isinstance(index, Tensor):
        raise TypeError(f"an index must be a tensor of integers, got {type(index).__name__}")
    if index.is_floating_point() or index.is_complex() or index.dtype == torch.bool:
        raise TypeError(f"an index has integers, got a tensor of {index.dtype}")
    if not torch.compiler.is_compiling() and is_mapped(index):
        raise ValueError(
            "an index may have any batch dimensions (..., M): pass it whole, not by vmap"
        )
