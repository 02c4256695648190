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


def draw(
    structure: Structure,
    logs: list[Tensor],
    num: int,
    generator: torch.Generator | None,
    limit: int,
) -> Tensor:
    """Draw `(num, M)` indices of the free edges.

    `logs` are the operands of the network; no tensor over ranks has more than `limit` entries.
    """
    states = _draw_ranks(structure, logs, num, generator, limit)
    columns = [
        _race(_given(logs[e].detach(), structure.core_ranks[e], states, num), generator).argmin(0)
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
    states = _draw_ranks(structure, logs, num, generator, limit)
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
    return torch.empty_like(log).exponential_(generator=generator).log() - log


def _draw_ranks(
    structure: Structure,
    logs: list[Tensor],
    num: int,
    generator: torch.Generator | None,
    limit: int,
) -> dict[int, Tensor]:
    """The states `(num,)` of every rank, from their distribution given the fixed edges."""
    device = logs[0].device
    states = {
        rank: torch.randint(size, (num,), generator=generator, device=device)
        for rank, size in enumerate(structure.ranks)
    }
    factors = [
        (structure.core_ranks[e], logs[e].detach())
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
    for rank, around, table in reversed(eliminated):
        states[rank] = _race(_given(table, around, states, num), generator).argmin(0)
    return states
