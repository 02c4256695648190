"""Exact samples from a network with softmax cores: draw the ranks, then every choice by itself.

Given the ranks, the choices are independent, and without conditions the ranks are uniform and
independent. With conditions the ranks follow `p(r) ~ prod_e W_e(i_e, r)` over the fixed edges: they
are drawn by eliminating them one after the other, and going back.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tensus_tn.network.elimination import min_fill_order
from tensus_tn.network.planner import find_plan
from tensus_tn.network.semiring import LOG_SUM_EXP
from tensus_tn.network.structure import Structure
from tensus_tn.network.typing import Indices

# Ranks in the order in which they are drawn: each with those that it depends on, and the table
# `(d, ...)` of the logarithms of its weights given these.
Posterior = list[tuple[int, Indices, Tensor]]


def draw(
    structure: Structure,
    logs: list[Tensor],
    num: int,
    generator: torch.Generator | None,
    limit: int,
) -> Tensor:
    """Draw `(num, M)` indices of the free edges, in pieces.

    `logs` are the operands of the network; no tensor but the result has more than `limit` entries.
    """
    logs = [log.detach() for log in logs]
    posterior = _eliminate_ranks(structure, logs, limit)
    piece = max(limit // max(*structure.shape, *structure.ranks, 1), 1)
    pieces = [piece] * (num // piece) + [num % piece] * (num % piece > 0)
    return torch.cat([_draw_piece(structure, logs, n, generator, posterior) for n in pieces])


def _draw_piece(
    structure: Structure,
    logs: list[Tensor],
    num: int,
    generator: torch.Generator | None,
    posterior: Posterior,
) -> Tensor:
    states = _draw_ranks(structure, num, generator, posterior, logs[0].device)
    columns = [
        _race(_given(logs[e], structure.core_ranks[e], states, num), generator).argmin(0)
        for e in structure.free
    ]
    return torch.stack(columns, dim=1)


def draw_one_hot(
    structure: Structure,
    logs: list[Tensor],
    num: int,
    temperature: float,
    generator: torch.Generator | None,
    limit: int,
) -> dict[int, Tensor]:
    """Draw one-hot choices `(num, C_e)` with straight-through Gumbel gradients."""
    posterior = _eliminate_ranks(structure, [log.detach() for log in logs], limit)
    states = _draw_ranks(structure, num, generator, posterior, logs[0].device)
    draws = {}
    for e in structure.free:
        arrival = _race(_given(logs[e], structure.core_ranks[e], states, num), generator)
        soft = torch.softmax(-arrival / temperature, dim=0)
        hard = torch.zeros_like(soft).scatter_(0, arrival.argmin(0, keepdim=True), 1.0)
        draws[e] = (hard + soft - soft.detach()).t()
    return draws


def _given(log: Tensor, ranks: tuple[int, ...], states: dict[int, Tensor], num: int) -> Tensor:
    """The values `(C, num)` of an operand `(C, d, ...)` at the states of its ranks."""
    if not ranks:
        return log.unsqueeze(1).expand(-1, num)
    position = states[ranks[0]]
    for rank, size in zip(ranks[1:], log.shape[2:], strict=True):
        position = position * size + states[rank]
    return log.flatten(1).index_select(1, position)


def _race(log: Tensor, generator: torch.Generator | None) -> Tensor:
    """Log arrival times of exponential clocks with rates `exp(log)`: the first is a fair draw."""
    clock = torch.empty_like(log).exponential_(generator=generator)
    # Never at once: where the rate is zero, that would be log 0 - log 0.
    return clock.clamp_min_(torch.finfo(log.dtype).tiny).log() - log


def _eliminate_ranks(structure: Structure, logs: list[Tensor], limit: int) -> Posterior:
    """For each rank that fixed edges touch, its distribution given the ranks that are drawn before."""
    factors = [
        (structure.core_ranks[e], logs[e])
        for e in sorted(structure.fixed)
        if structure.core_ranks[e]
    ]
    eliminated = []
    for rank in list(min_fill_order([ranks for ranks, _ in factors], set())):
        joint = [factor for factor in factors if rank in factor[0]]
        factors = [factor for factor in factors if rank not in factor[0]]
        around = tuple(dict.fromkeys(r for ranks, _ in joint for r in ranks if r != rank))
        plan = find_plan([r for r, _ in joint], (rank, *around), structure.sizes, limit=limit)
        table = plan(*(values for _, values in joint), semiring=LOG_SUM_EXP)
        factors.append((around, table.logsumexp(0)))
        eliminated.append((rank, around, table))
    return eliminated[::-1]


def _draw_ranks(
    structure: Structure,
    num: int,
    generator: torch.Generator | None,
    posterior: Posterior,
    device: torch.device,
) -> dict[int, Tensor]:
    """The states `(num,)` of every rank: uniform, but for those that fixed edges touch."""
    states = {
        rank: torch.randint(size, (num,), generator=generator, device=device)
        for rank, size in enumerate(structure.ranks)
    }
    for rank, around, table in posterior:
        states[rank] = _race(_given(table, around, states, num), generator).argmin(0)
    return states
