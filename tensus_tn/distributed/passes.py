"""A propagation over several processes: the order of its passes, and the exchanges between them.

Forward, a state is exchanged as soon as it is complete, and the rows that need nothing of others are
worked on meanwhile. The propagation is linear, so the backward pass is the same over transposed rows:
these are complete, so gradients of the receiving states are exchanged, and states never again. Only
where links are mixed first backward does the gradient of their weights take the tail's halo once more.

The order is that of `csrc/ops_cpu.cpp`, to the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tensus_tn.distributed.halo import Exchange
from tensus_tn.distributed.local_rows import LocalRows, Rows

if TYPE_CHECKING:
    from tensus_tn.distributed.graph import DistributedGraph


@dataclass(frozen=True)
class Problem:
    """What a propagation is asked for, besides the numbers."""

    ranks: tuple[int, ...]
    tails: tuple[int, ...]
    heads: tuple[int, ...]
    chosen: tuple[int, ...] | None

    @property
    def last(self) -> int:
        """The sink."""
        return len(self.ranks) - 1

    def split(self, w: Tensor) -> list[Tensor]:
        """The weights (C, d_j, d_k) of every link, or their gradients, from one vector."""
        ends = zip(self.tails, self.heads, strict=True)
        shapes = [(self.ranks[j], self.ranks[k]) for j, k in ends]
        relations = w.numel() // sum(p * q for p, q in shapes)
        parts = w.split([relations * p * q for p, q in shapes])
        return [part.view(relations, *s) for part, s in zip(parts, shapes, strict=True)]

    def clear_unused(self, w: Tensor) -> None:
        """Set to zero what belongs to relations that a link does not use."""
        if self.chosen is None:
            return
        flags = torch.tensor(self.chosen, dtype=torch.bool).reshape(len(self.tails), -1)
        for weight, used in zip(self.split(w), flags, strict=True):
            weight[~used] = 0

    def mixed_first(self, graph: DistributedGraph, backward: bool) -> list[int]:
        """Which links are mixed first: decided by the sizes of the whole graph, not of this part."""
        flags: list[int] = torch.ops.tensus_tn.plan_passes(
            graph.edges_by_relation,
            graph.total_nodes,
            self.ranks,
            self.tails,
            self.heads,
            self.chosen,
            backward,
        )
        return flags


@dataclass
class _Way:
    """One direction of the graph: passes over it read states of own and foreign rows."""

    rows: LocalRows
    loop: Tensor
    from_tail: bool

    def room(self, like: Tensor, rank: int) -> Tensor:
        """Memory for a state with its halo."""
        state: Tensor = torch.ops.tensus_tn.empty_state(like, self.rows.columns, rank)
        return state

    def with_room(self, state: Tensor) -> Tensor:
        """A copy of own rows in memory that has room for the halo; themselves where that is empty."""
        if not len(self.rows.halo):
            return state.contiguous()
        larger = self.room(state, state.shape[1])
        larger[: self.rows.own] = state
        return larger

    def fetch(self, state: Tensor) -> Exchange:
        """Begin to fetch the halo of a state."""
        return self.rows.halo.start(state, self.rows.own)

    def gather_mix(
        self,
        x: Tensor,
        exchange: Exchange,
        w: Sequence[Tensor],
        out: Sequence[Tensor],
        accumulate: Sequence[bool],
        other: Sequence[Tensor] = (),
        dw: Sequence[Tensor] = (),
    ) -> None:
        """All links at the state `x`: interior rows, then, with the halo, those at the boundary."""
        for rows in (self.rows.interior, self.rows.boundary):
            if rows is self.rows.boundary:
                exchange.wait()
            if not len(rows):
                continue
            shares = [torch.empty_like(grad) for grad in dw]
            values = (rows.segments.edge_val, rows.segments.seg_val, self.loop, rows.seg_loop)
            torch.ops.tensus_tn.gather_mix(
                x,
                w,
                *values,
                rows.segments.structure(),
                rows.pairs,
                rows.number,
                out,
                accumulate,
                other,
                shares,
                self.from_tail,
            )
            for grad, share in zip(dw, shares, strict=True):
                grad += share

    def mix_gather(
        self, y: Tensor, accumulate: bool, w: Sequence[Tensor], other: Sequence[Tensor]
    ) -> None:
        """All links that are mixed first into the state `y`; their far states have their halos."""
        rows: Rows = self.rows.joined
        values = (rows.segments.edge_val, rows.segments.seg_val, self.loop, rows.seg_loop)
        torch.ops.tensus_tn.mix_gather(
            y,
            accumulate,
            w,
            *values,
            rows.segments.structure(),
            rows.pairs,
            rows.number,
            other,
            not self.from_tail,
        )


def _forward(graph: DistributedGraph, problem: Problem, h: Tensor, w: Tensor) -> list[Tensor]:
    """The states 0 .. K at own rows; the memory of all but the sink goes on with the halo."""
    way = _Way(graph.forward, graph.loop, True)
    weights, first = problem.split(w), problem.mixed_first(graph, False)
    states = [way.with_room(h)]
    states += [way.room(h, rank) for rank in problem.ranks[1:-1]]
    states.append(torch.ops.tensus_tn.empty_state(states[0], graph.num_nodes, problem.ranks[-1]))
    written = [False] * len(states)
    links = list(enumerate(zip(problem.tails, problem.heads, strict=True)))
    for k, state in enumerate(states):
        mixed = [e for e, (_, head) in links if head == k and first[e]]
        if mixed:
            far = [states[problem.tails[e]] for e in mixed]
            way.mix_gather(state, written[k], [weights[e] for e in mixed], far)
        if k == problem.last:
            break
        exchange = way.fetch(state)
        gathered = [e for e, (tail, _) in links if tail == k and not first[e]]
        if gathered:
            heads = [problem.heads[e] for e in gathered]
            way.gather_mix(
                state,
                exchange,
                [weights[e] for e in gathered],
                [states[head] for head in heads],
                [written[head] for head in heads],
            )
            for head in heads:
                written[head] = True
        exchange.wait()
    return [h, *(state[: graph.num_nodes] for state in states[1:])]


def _backward(
    graph: DistributedGraph,
    problem: Problem,
    grads: Sequence[Tensor | None],
    states: Sequence[Tensor],
    w: Tensor,
    need_h: bool,
    need_w: bool,
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of `h` and of `w`, given those of the states 1 .. K."""
    way = _Way(graph.backward, graph.loop, False)
    again = _Way(graph.forward, graph.loop, True)
    weights, first = problem.split(w), problem.mixed_first(graph, True)
    dw = torch.zeros_like(w)
    of_w = problem.split(dw)
    like, own = states[0], graph.num_nodes
    nothing = like.new_empty(0, 1, like.shape[2])
    written = [False, *(grad is not None for grad in grads)]
    grad: list[Tensor] = [nothing]
    if need_h:
        grad = [torch.ops.tensus_tn.empty_state(like.contiguous(), own, problem.ranks[0])]
    for k, given in enumerate(grads, start=1):
        if given is None:
            grad.append(way.room(like.contiguous(), problem.ranks[k]))
        else:  # a copy: it is added to
            grad.append(way.with_room(given) if k == problem.last else way.with_room(given.clone()))
    if not written[-1]:
        grad[-1].zero_()
    links = list(enumerate(zip(problem.tails, problem.heads, strict=True)))
    for k in range(problem.last, -1, -1):
        mixed = [e for e, (tail, _) in links if tail == k and first[e]]
        far = [grad[problem.heads[e]] for e in mixed]
        if mixed and (k > 0 or need_h):
            way.mix_gather(grad[k], written[k], [weights[e] for e in mixed], far)
            written[k] = True
        if mixed and need_w:
            state = again.with_room(states[k])
            again.gather_mix(
                state,
                again.fetch(state),
                [weights[e] for e in mixed],
                [nothing] * len(mixed),
                [False] * len(mixed),
                far,
                [of_w[e] for e in mixed],
            )
        if k == 0:
            break
        exchange = way.fetch(grad[k])
        gathered = [e for e, (_, head) in links if head == k and not first[e]]
        if gathered:
            tails = [problem.tails[e] for e in gathered]
            way.gather_mix(
                grad[k],
                exchange,
                [weights[e] for e in gathered],
                [grad[tail] for tail in tails],
                [written[tail] for tail in tails],
                [states[tail].contiguous() for tail in tails] if need_w else (),
                [of_w[e] for e in gathered] if need_w else (),
            )
            for tail in tails:
                written[tail] = True
        exchange.wait()
    problem.clear_unused(dw)
    return grad[0] if need_h else None, dw if need_w else None


class Propagation(torch.autograd.Function):
    """The states 1 .. K, differentiable once in `h` and `w`."""

    @staticmethod
    def forward(
        ctx: Any, graph: DistributedGraph, problem: Problem, h: Tensor, w: Tensor
    ) -> tuple[Tensor, ...]:
        """Save the own rows of the states, and no halo."""
        if problem.chosen is not None:
            w = w.clone()
            problem.clear_unused(w)
        states = _forward(graph, problem, h, w)
        ctx.graph, ctx.problem = graph, problem
        ctx.save_for_backward(w, h, *states[1:-1])
        ctx.set_materialize_grads(False)
        return tuple(states[1:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        """All processes come here together, whether or not their loss has a share."""
        w, *states = ctx.saved_tensors
        _, _, need_h, need_w = ctx.needs_input_grad
        dh, dw = _backward(ctx.graph, ctx.problem, grads, states, w, need_h, need_w)
        return None, None, dh, dw
