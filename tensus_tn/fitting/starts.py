"""Where a fit begins: singular vectors of the data, random cores, or the cores of a network."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Literal

import torch
from torch import Tensor

from tensus_tn.fitting.problem import Cores
from tensus_tn.fitting.settings import Settings
from tensus_tn.fitting.values import Scaled
from tensus_tn.network.structure import Structure
from tensus_tn.network.tensor import DagTensor

Init = Literal["svd", "random"] | DagTensor | None


def make_starts(
    tensor: DagTensor,
    dense: Tensor | None,
    data: Scaled,
    init: Init,
    fixed: frozenset[int],
    settings: Settings,
) -> Iterator[Cores]:
    """Starts without end: one of `init`, and random ones after it.

    Args:
        tensor: The network to fit; the random starts draw it anew.
        dense: The dense tensor of norm one, if there is one.
        data: The numbers to fit.
        init: `"svd"`, `"random"`, a network to start from, or None: the best for the network.
        fixed: The edges, by number, whose cores are those of `init` in every start.
        settings: With their seed, and whether they are not negative.
    """
    if fixed and not isinstance(init, DagTensor):
        raise ValueError(f"fixed cores are those of init, which must be a DagTensor, got {init!r}")
    if init is None:
        init = "svd" if dense is not None and tensor.structure.is_path else "random"
    random = _random_starts(tensor, data.values.numel(), settings)
    if isinstance(init, DagTensor):
        first = _cores_of(init, tensor, data.norm, fixed)
        if settings.nonnegative and any(bool((core < 0).any()) for core in first):
            raise ValueError("init has negative cores, but nonnegative ones are wanted")
        return _then(first, _with_fixed(random, first, fixed))
    if init not in ("svd", "random"):
        raise ValueError(f"init must be 'svd', 'random' or a DagTensor, got {init!r}")
    if init == "random":
        return random
    if dense is None:
        raise ValueError("init='svd' needs a dense tensor; start from 'random' or from a DagTensor")
    first = (tt_svd if tensor.structure.is_path else mode_svd)(tensor.structure, dense)
    if settings.nonnegative:
        first = [core.abs() for core in first]
    return _then(first, random)


def _then(first: Cores, rest: Iterator[Cores]) -> Iterator[Cores]:
    yield first
    yield from rest


def _with_fixed(starts: Iterator[Cores], given: Cores, fixed: frozenset[int]) -> Iterator[Cores]:
    for cores in starts:
        yield [given[e] if e in fixed else core for e, core in enumerate(cores)]


def _random_starts(tensor: DagTensor, num_entries: int, settings: Settings) -> Iterator[Cores]:
    """Random cores, scaled so that a model of so many entries has a norm of about one."""
    generator = torch.Generator(next(tensor.parameters()).device).manual_seed(settings.seed)
    scale = num_entries ** (-0.5 / tensor.ndim)
    while True:
        tensor.reset_parameters(generator)
        cores = [core * scale for core in _operands(tensor)]
        yield [core.abs() for core in cores] if settings.nonnegative else cores


def _cores_of(init: DagTensor, tensor: DagTensor, norm: float, fixed: frozenset[int]) -> Cores:
    """The cores of a network like `tensor`, for data that were divided by `norm`.

    The fixed ones stay as they are: the others carry the scale.
    """
    if init.structure != tensor.structure:
        raise ValueError(f"init must be like the result, {tensor}, got {init}")
    if init.dtype.is_complex and not tensor.dtype.is_complex:
        raise ValueError(f"init has complex cores, {init.dtype}, but the data are real")
    scale = norm ** (-1 / (tensor.ndim - len(fixed)))
    cores = [core.to(next(tensor.parameters())) for core in _operands(init)]
    return [core if e in fixed else core * scale for e, core in enumerate(cores)]


def _operands(tensor: DagTensor) -> Cores:
    """The parameters, with the indices of `structure.terms`."""
    cores = zip(tensor.parameters(), tensor.structure.operand_shapes, strict=True)
    return [core.detach().reshape(shape) for core, shape in cores]


def tt_svd(structure: Structure, dense: Tensor) -> Cores:
    """The cores of a tensor train by successive SVDs, zero where a rank is not needed."""
    order, cores = structure.path_order, [dense] * dense.ndim
    rest, rank = dense.permute(order).reshape(1, -1), 1
    for e in order[:-1]:
        matrix = rest.reshape(rank * dense.shape[e], -1)
        tail, rank = rank, structure.core_shape(e)[-1]
        vectors = _leading_vectors(matrix, rank)
        cores[e] = vectors.reshape(tail, dense.shape[e], rank).movedim(1, 0)
        rest = vectors.mH @ matrix
    cores[order[-1]] = rest.mT
    shapes = structure.operand_shapes
    return [core.reshape(shape) for core, shape in zip(cores, shapes, strict=True)]


def mode_svd(structure: Structure, dense: Tensor) -> Cores:
    """For each edge, the leading left singular vectors of the data unfolded along its axis.

    This is the usual start of CP. Where an edge has fewer choices than rank states, the vectors are
    used again, the second time with half the size, so that no two states are the same.
    """
    cores = []
    for e, shape in enumerate(structure.operand_shapes):
        matrix = dense.movedim(e, 0).flatten(1)
        number = prod(shape[1:])
        vectors = _leading_vectors(matrix, min(number, shape[0]))
        times = -(-number // vectors.shape[1])
        copies = [vectors.roll(k, 1) / 2**k for k in range(times)]
        cores.append(torch.cat(copies, dim=1)[:, :number].reshape(shape))
    return cores


def _leading_vectors(matrix: Tensor, number: int) -> Tensor:
    """The leading left singular vectors `(m, number)` of `(m, n)`; zeros where there are fewer."""
    rows, columns = matrix.shape
    if columns > 4 * rows:
        # The same vectors from the small Gram matrix, in a fraction of the time. Those of singular
        # values below 1e-8 of the largest are lost in rounding, and so do not matter.
        vectors = torch.linalg.eigh(matrix @ matrix.mH).eigenvectors.flip(1)
    else:
        vectors = torch.linalg.svd(matrix, full_matrices=False).U
    leading = matrix.new_zeros(rows, number)
    kept = min(number, vectors.shape[1])
    leading[:, :kept] = vectors[:, :kept]
    return leading
