"""Raising and lowering the ranks of a network: copy rank states, or merge the most alike."""

from __future__ import annotations

from math import log

import torch
from torch import Tensor

from tensus_tn.network.structure import Structure

Groups = list[list[int]]  # for each new state, the old ones that it stands for


def grow(structure: Structure, cores: list[Tensor], rank: int, size: int) -> list[Tensor]:
    """Raise a rank index to `size` states, copies of the old ones in turn.

    The function does not change: the copies of a state share its weight. `cores` have the shapes
    `(C, d_j, d_k)` and are logarithms if the network is normalised.
    """
    old = structure.ranks[rank]
    _check(structure, rank, size, old <= size, size % old == 0)
    groups = [[state % old] for state in range(size)]
    copies = [groups.count(group) for group in groups]
    return _regroup(structure, cores, rank, groups, [1 / count for count in copies])


def shrink(structure: Structure, cores: list[Tensor], rank: int, size: int) -> list[Tensor]:
    """Lower a rank index to `size` states, each the mean of a group of old ones that are alike.

    The function does not change where the states of a group are equal, so this undoes `grow`.
    """
    old = structure.ranks[rank]
    _check(structure, rank, size, size <= old, old % size == 0)
    distance = _distances(structure, cores, rank)
    left, groups = list(range(old)), []
    for state in range(size):
        members = old // size + (state < old % size)
        groups.append(sorted(left, key=distance[left[0]].__getitem__)[:members])
        left = [other for other in left if other not in groups[-1]]
    return _regroup(structure, cores, rank, groups, [float(len(group)) for group in groups])


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


def _touching(structure: Structure, rank: int) -> list[tuple[int, int]]:
    """The edges whose core has the rank, with the dimension that it is."""
    return [(e, 1 + ends.index(rank)) for e, ends in enumerate(structure.ends) if rank in ends]


def _distances(structure: Structure, cores: list[Tensor], rank: int) -> list[list[float]]:
    """How far apart the states of a rank are, over all cores that have it."""
    plain = [core.exp() if structure.normalized else core for core in cores]
    rows = [plain[e].movedim(dim, 0).flatten(1) for e, dim in _touching(structure, rank)]
    features = torch.cat(rows, dim=1)
    if features.is_complex():
        features = torch.view_as_real(features).flatten(1)
    distances: list[list[float]] = torch.cdist(features, features).tolist()
    return distances


def _regroup(
    structure: Structure, cores: list[Tensor], rank: int, groups: Groups, weights: list[float]
) -> list[Tensor]:
    """Replace the states of a rank by the means over groups of them.

    In a free network one core takes the weights of the new states; in a normalised one the states
    weigh the same before and after.
    """
    mixed = list(cores)
    for number, (e, dim) in enumerate(_touching(structure, rank)):
        states = [
            _mean(cores[e].index_select(dim, torch.tensor(group)), dim, structure.normalized)
            for group in groups
        ]
        if number == 0 and not structure.normalized:
            states = [state * weight for state, weight in zip(states, weights, strict=True)]
        mixed[e] = torch.stack(states, dim)
    return mixed


def _mean(states: Tensor, dim: int, is_log: bool) -> Tensor:
    return states.logsumexp(dim) - log(states.shape[dim]) if is_log else states.mean(dim)
