"""Tensor trains and CP decompositions in the layout of TensorLy, to and from the cores of a network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from math import exp
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tensus_tn.network.structure import Structure


@dataclass(frozen=True)
class PathCores:
    """The cores `(n, r, r')` of a network over a path, its shape, and the rank of each inner node."""

    cores: list[Tensor]
    shape: list[int]
    ranks: list[int]


def read_tt(cores: Sequence[Any]) -> PathCores:
    """Check cores `(r, n, r')` of a tensor train, tensors or arrays, and turn them to `(n, r, r')`."""
    cores = _as_tensors(cores)
    shapes = [tuple(core.shape) for core in cores]
    if not shapes or any(len(shape) != 3 for shape in shapes):
        raise ValueError(f"expected one or more cores (r, n, r') of a tensor train, got {shapes}")
    ends = [1, *(shape[-1] for shape in shapes)]
    for k, shape in enumerate(shapes):
        if shape[0] != ends[k] or (k == len(shapes) - 1 and ends[-1] != 1):
            raise ValueError(f"core {k} does not fit a tensor train (r, n, r'): {shapes}")
    return PathCores([core.movedim(1, 0) for core in cores], [s[1] for s in shapes], ends[1:-1])


def write_tt(structure: Structure, cores: Iterable[Tensor]) -> list[Tensor]:
    """Turn the cores `(n, r, r')` of a network over a path to `(r, n, r')`."""
    dag = structure.dag
    is_path = dag.edges == tuple(zip(dag.nodes, dag.nodes[1:], strict=False))
    if not is_path or len(structure.ranks) != len(dag.inner):
        raise ValueError(
            f"only a path whose nodes have their own ranks is a tensor train, got {dag} with "
            f"ranks {structure.ranks}"
        )
    # The factor 1 / Z is spread over the cores: in one of them it might underflow.
    share = exp(-structure.log_states / len(dag.edges)) if structure.normalized else 1.0
    return [share * core.movedim(0, 1) for core in cores]


def read_cp(weights: Any | None, factors: Sequence[Any]) -> PathCores:
    """Check weights `(d,)` and factors `(n, d)`, tensors or arrays; the first takes the weights."""
    factors = _as_tensors(factors)
    shapes = [tuple(factor.shape) for factor in factors]
    if len(shapes) < 2 or any(len(s) != 2 or s[1] != shapes[0][1] for s in shapes):
        raise ValueError(f"expected two or more factors (n, d) with one d, got {shapes}")
    first, *rest = factors
    if weights is not None:
        weights = torch.as_tensor(weights, device=first.device)
        if weights.shape != first.shape[1:]:
            raise ValueError(
                f"expected weights {tuple(first.shape[1:])}, got {tuple(weights.shape)}"
            )
        first = first * weights  # in the wider of their dtypes
    return PathCores([first, *rest], [s[0] for s in shapes], [s[1] for s in shapes[1:]])


def write_cp(structure: Structure, cores: Iterable[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Turn the cores of a network with one rank index into weights `(d,)` and factors `(n, d)`."""
    if len(structure.ranks) > 1 and set(structure.ranks) != {1}:
        raise ValueError(
            f"only a network with one rank index, or of rank 1, is CP, got {structure.dag} with "
            f"ranks {structure.ranks}"
        )
    rank = max(structure.ranks, default=1)
    factors = [core.flatten(1).expand(-1, rank) for core in cores]
    weight = 1 / rank if structure.normalized else 1.0
    return factors[0].new_full((rank,), weight), factors


def as_arrays(tensors: Iterable[Tensor]) -> list[np.ndarray]:
    """Tensors as arrays of numpy, which know no gradients."""
    return [tensor.numpy(force=True) for tensor in tensors]


def _as_tensors(arrays: Iterable[Any]) -> list[Tensor]:
    """Tensors and arrays as tensors of one dtype, the widest of theirs."""
    tensors = [torch.as_tensor(array) for array in arrays]
    dtype = reduce(torch.promote_types, (tensor.dtype for tensor in tensors), torch.bool)
    return [tensor.to(dtype) for tensor in tensors]
