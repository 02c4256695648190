"""Sums and truncations of networks, core by core."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import torch
from torch import Tensor

from tensus_tn.network.structure import Structure

Cores = list[Tensor]  # of the shapes `(C, d_j, d_k)`


def check_sum(first: Structure, second: Structure) -> None:
    """Raise a ValueError unless the sum of two networks is a network over the same graph.

    The states of its ranks are those of both. That a product of cores takes all its states from one
    of the two is held by the cores between two ranks, so the ranks must hang together and every core
    must have one: a core without a rank would be a factor of the sum, as of both, yet differs in them.
    """
    same = (first.dag, first.choices, len(first.ranks)) == (
        second.dag,
        second.choices,
        len(second.ranks),
    )
    if not same or first.normalized or second.normalized:
        raise ValueError(
            "a sum needs two networks with free cores, of the same Dag, choices and ties"
        )
    if len(first.ends) == 1:
        return
    for edge, ends in zip(first.dag.edges, first.ends, strict=True):
        if ends == (None, None):
            raise ValueError(
                f"a sum of two networks over {first.dag} is none over it: the edge {edge!r} joins "
                f"source and sink, so its core has no rank and is a factor of the whole; where the "
                f"factors of the two differ, their sum has none"
            )
    if not _hangs_together(first):
        raise ValueError(
            f"a sum of two networks over {first.dag} is none over it: its ranks are not joined by "
            f"edges, so products of cores of both would come in"
        )


def _hangs_together(structure: Structure) -> bool:
    groups = {rank: {rank} for rank in range(len(structure.ranks))}
    for ends in structure.ends:
        own = [rank for rank in ends if rank is not None]
        joined = groups[own[0]] | groups[own[-1]]
        groups.update(dict.fromkeys(joined, joined))
    return len(groups[0]) == len(groups)


def add(structure: Structure, first: Sequence[Tensor], second: Sequence[Tensor]) -> Cores:
    """The cores of the sum: those of both as blocks on the diagonal of the ranks, zero elsewhere."""
    cores = []
    for ends, a, b in zip(structure.ends, first, second, strict=True):
        own = [1 + d for d, rank in enumerate(ends) if rank is not None]
        shape = [a.shape[d] + b.shape[d] if d in own else a.shape[d] for d in range(3)]
        core = a.new_zeros(shape)
        core[tuple(slice(a.shape[d]) for d in range(3))] += a
        core[tuple(slice(a.shape[d] if d in own else 0, None) for d in range(3))] += b
        cores.append(core)
    return cores


def round_train(cores: Cores, ranks: list[int] | None, tol: float) -> Cores:
    """The cores `(C, r, r')` of a tensor train, in the order of the path, at lower ranks.

    The cores are made orthogonal from the right; then, from the left, each pair is cut at its largest
    singular values, which is the best that one cut can do.

    Args:
        cores: The cores.
        ranks: The highest rank of each inner node; None: any.
        tol: What is cut off may have this share of the norm.
    """
    train = [core.movedim(1, 0) for core in cores]  # (r, C, r')
    for k in range(len(train) - 1, 0, -1):
        q, r = torch.linalg.qr(train[k].flatten(1).mH)
        train[k] = q.mH.reshape(-1, *train[k].shape[1:])
        train[k - 1] = train[k - 1] @ r.mH
    allowed = tol * float(train[0].norm()) / sqrt(max(len(train) - 1, 1))
    for k in range(len(train) - 1):
        u, s, v = torch.linalg.svd(train[k].flatten(0, 1), full_matrices=False)
        tails = s.square().flip(0).cumsum(0).flip(0).sqrt()
        rank = max(int((tails > allowed).sum()), 1)
        rank = rank if ranks is None else min(rank, ranks[k])
        train[k] = u[:, :rank].reshape(*train[k].shape[:2], rank)
        train[k + 1] = torch.tensordot(s[:rank, None] * v[:rank], train[k + 1], dims=1)
    return [core.movedim(0, 1) for core in train]
