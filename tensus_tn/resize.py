"""Raising and lowering the ranks of a network: copy rank states, or merge the most alike."""

from __future__ import annotations

import torch
from torch import Tensor

from tensus_tn.structure import Structure


def grow(structure: Structure, cores: list[Tensor], rank: int, size: int) -> list[Tensor]:
    """Raise a rank index to ``size`` states, copies of the old ones in turn.

    The function does not change: the copies of a state share its weight.
    """
    old = structure.ranks[rank]
    _check(structure, rank, size, old <= size, size % old == 0)
    source = torch.arange(size) % old
    copies = torch.bincount(source, minlength=old)
    return _mix(structure, cores, rank, torch.eye(old)[source], 1 / copies[source])


def shrink(structure: Structure, cores: list[Tensor], rank: int, size: int) -> list[Tensor]:
    """Lower a rank index to ``size`` states, each the mean of a group of old ones that are alike.

    The function does not change where the states of a group are equal, so this undoes :func:`grow`.
    """
    old = structure.ranks[rank]
    _check(structure, rank, size, size <= old, old % size == 0)
    mean = torch.zeros(size, old)
    left = list(range(old))
    distance = _distances(structure, cores, rank)
    for state in range(size):
        members = old // size + (state < old % size)
        group = sorted(left, key=distance[left[0]].__getitem__)[:members]
        mean[state, group] = 1 / members
        left = [other for other in left if other not in group]
    return _mix(structure, cores, rank, mean, (mean > 0).sum(1))


def _check(structure: Structure, rank: int, size: int, in_order: bool, divides: bool) -> None:
    old = structure.ranks[rank]
    if not in_order:
        raise ValueError(
            f"grow raises ranks and shrink lowers them: from {old} to {size} is neither"
        )
    if structure.normalized and not divides:
        raise ValueError(
            f"with softmax cores the states of a rank weigh the same, so one rank must be a multiple "
            f"of the other, got {old} and {size}"
        )


def _distances(structure: Structure, cores: list[Tensor], rank: int) -> list[list[float]]:
    """How far apart the states of a rank are, over all cores that have it."""
    rows = [
        core.movedim(1 + ranks.index(rank), 0).flatten(1)
        for core, ranks in zip(cores, structure.core_ranks, strict=True)
        if rank in ranks
    ]
    features = torch.cat(rows, dim=1)
    distances: list[list[float]] = torch.cdist(features, features).tolist()
    return distances


def _mix(
    structure: Structure, cores: list[Tensor], rank: int, mean: Tensor, weight: Tensor
) -> list[Tensor]:
    """Multiply every core that has the rank by ``mean (new, old)``.

    In a free network one of them takes the ``weight (new,)`` of the new states; in a normalised one
    the states weigh the same before and after.
    """
    mixed = list(cores)
    touched = [e for e, ranks in enumerate(structure.core_ranks) if rank in ranks]
    for e in touched:
        matrix = (
            mean * weight.unsqueeze(1) if e == touched[0] and not structure.normalized else mean
        )
        dim = 1 + structure.core_ranks[e].index(rank)
        matrix = matrix.to(cores[e])
        mixed[e] = torch.tensordot(cores[e], matrix, dims=([dim], [1])).movedim(-1, dim)
    return mixed
