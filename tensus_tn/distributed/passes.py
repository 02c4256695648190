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
from tensus_tn.distributed.problem import Problem
from tensus_tn.distributed.row_plan import PassRows, Way

if TYPE_CHECKING:
    from tensus_tn.distributed.graph import DistributedGraph


@dataclass
class _Passes:
    """Passes over one direction of the graph; they read states, and foreign rows of these."""

    way: Way
    loop: Tensor
    problem: Problem
    from_tail: bool

    def room(self, like: Tensor, k: int) -> Tensor:
        """Memory for state k."""
        rows, rank = self.way.states[k].own, self.problem.ranks[k]
        state: Tensor = torch.ops.tensus_tn.empty_state(like, rows, rank)
        return state

    def fetch(self, state: Tensor, k: int) -> Exchange:
        """Begin to fetch the halo of state k."""
        return self.way.states[k].halo.start(state)

    def far(self, links: Sequence[int]) -> list[int]:
        """The states that links lead to, in this direction."""
        ends = self.problem.heads if self.from_tail else self.problem.tails
        return [ends[e] for e in links]

    def near(self, links: Sequence[int]) -> list[int]:
        """The states that links come from, in this direction."""
        ends = self.problem.tails if self.from_tail else self.problem.heads
        return [ends[e] for e in links]

    def gather_mix(
        self,
        x: Tensor,
        k: int,
        exchange: Exchange,
        links: Sequence[int],
        w: Sequence[Tensor],
        out: Sequence[Tensor],
        accumulate: Sequence[bool],
        other: Sequence[Tensor] = (),
        dw: Sequence[Tensor] = (),
    ) -> None:
        """Links at state k, which is `x`: interior rows, then, with the halo, those at the boundary."""
        interior, boundary = self.way.gathered(k, self.far(links), links)
        for rows in (interior, boundary):
            halo = exchange.wait() if rows is boundary else None
            if not rows.segments.num_rows:
                continue
            shares = [torch.empty_like(grad) for grad in dw]
            torch.ops.tensus_tn.gather_mix(
                x, halo, w, *self._graph(rows), out, accumulate, other, shares, self.from_tail
            )
            for grad, share in zip(dw, shares, strict=True):
                grad += share

    def mix_gather(
        self,
        y: Tensor,
        k: int,
        accumulate: bool,
        links: Sequence[int],
        w: Sequence[Tensor],
        other: Sequence[Tensor],
        halos: Sequence[Tensor],
    ) -> None:
        """Links that are mixed first into state k, which is `y`, from states with their halos."""
        rows = self.way.mixed(k, self.near(links), links)
        torch.ops.tensus_tn.mix_gather(
            y, accumulate, w, *self._graph(rows), other, halos, not self.from_tail
        )

    def _graph(self, rows: PassRows) -> tuple[Any, ...]:
        """What both passes take of the graph."""
        values = rows.segments.edge_val, rows.segments.seg_val, self.loop, rows.seg_loop
        return *values, rows.segments.structure(), rows.pairs, rows.near, rows.far


def _forward(
    graph: DistributedGraph, problem: Problem, way: Way, h: Tensor, w: Tensor
) -> list[Tensor]:
    """The states 1 .. K at the rows here."""
    passes = _Passes(way, graph.loop, problem, True)
    weights = problem.split(w)
    first = problem.mixed_first(graph.edges_by_relation, graph.total_nodes, False)
    states = [h, *(passes.room(h, k) for k in range(1, problem.last + 1))]
    halos: dict[int, Tensor] = {}  # of states that are mixed first: they are kept till then
    written = [False] * len(states)
    links = list(enumerate(zip(problem.tails, problem.heads, strict=True)))
    last_head = {
        tail: max(h for e, (t, h) in links if t == tail and first[e])
        for e, (tail, _) in links
        if first[e]
    }
    for k, state in enumerate(states):
        mixed = [e for e, (_, head) in links if head == k and first[e]]
        if mixed:
            tails = [problem.tails[e] for e in mixed]
            passes.mix_gather(
                state,
                k,
                written[k],
                mixed,
                [weights[e] for e in mixed],
                [states[tail] for tail in tails],
                [halos[tail] for tail in tails],
            )
        halos = {tail: halo for tail, halo in halos.items() if last_head[tail] > k}
        if k == problem.last:
            break
        exchange = passes.fetch(state, k)
        gathered = [e for e, (tail, _) in links if tail == k and not first[e]]
        if gathered:
            heads = [problem.heads[e] for e in gathered]
            passes.gather_mix(
                state,
                k,
                exchange,
                gathered,
                [weights[e] for e in gathered],
                [states[head] for head in heads],
                [written[head] for head in heads],
            )
            for head in heads:
                written[head] = True
        halo = exchange.wait()
        if k in last_head:
            halos[k] = halo
    return states[1:]


def _backward(
    graph: DistributedGraph,
    problem: Problem,
    ways: tuple[Way, Way],
    grads: Sequence[Tensor | None],
    states: Sequence[Tensor],
    w: Tensor,
    need_h: bool,
    need_w: bool,
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of `h` and of `w`, given those of the states 1 .. K."""
    passes = _Passes(ways[1], graph.loop, problem, False)
    again = _Passes(ways[0], graph.loop, problem, True)
    weights = problem.split(w)
    first = problem.mixed_first(graph.edges_by_relation, graph.total_nodes, True)
    dw = torch.zeros_like(w)
    of_w = problem.split(dw)
    like = states[0].contiguous()
    nothing = like.new_empty(0, 1, like.shape[2])
    written = [False, *(grad is not None for grad in grads)]
    grad: list[Tensor] = [passes.room(like, 0) if need_h else nothing]
    for k, given in enumerate(grads, start=1):
        if given is None:
            grad.append(passes.room(like, k))
        else:  # a copy where it is added to
            grad.append((given if k == problem.last else given.clone()).contiguous())
    halos: dict[int, Tensor] = {}
    if not written[-1]:
        grad[-1].zero_()
    links = list(enumerate(zip(problem.tails, problem.heads, strict=True)))
    first_tail = {
        head: min(t for e, (t, h) in links if h == head and first[e])
        for e, (_, head) in links
        if first[e]
    }
    for k in range(problem.last, -1, -1):
        mixed = [e for e, (tail, _) in links if tail == k and first[e]]
        heads = [problem.heads[e] for e in mixed]
        far = [grad[head] for head in heads]
        if mixed and (k > 0 or need_h):
            there = [halos[head] for head in heads]
            passes.mix_gather(
                grad[k], k, written[k], mixed, [weights[e] for e in mixed], far, there
            )
            written[k] = True
        halos = {head: halo for head, halo in halos.items() if first_tail[head] < k}
        if mixed and need_w:
            state = states[k].contiguous()
            again.gather_mix(
                state,
                k,
                again.fetch(state, k),
                mixed,
                [weights[e] for e in mixed],
                [nothing] * len(mixed),
                [False] * len(mixed),
                far,
                [of_w[e] for e in mixed],
            )
        if k == 0:
            break
        exchange = passes.fetch(grad[k], k)
        gathered = [e for e, (_, head) in links if head == k and not first[e]]
        if gathered:
            tails = [problem.tails[e] for e in gathered]
            passes.gather_mix(
                grad[k],
                k,
                exchange,
                gathered,
                [weights[e] for e in gathered],
                [grad[tail] for tail in tails],
                [written[tail] for tail in tails],
                [states[tail].contiguous() for tail in tails] if need_w else (),
                [of_w[e] for e in gathered] if need_w else (),
            )
            for tail in tails:
                written[tail] = True
        halo = exchange.wait()
        if k in first_tail:
            halos[k] = halo
    problem.clear_unused(dw)
    return grad[0] if need_h else None, dw if need_w else None


class Propagation(torch.autograd.Function):
    """The states 1 .. K at the rows here, differentiable once in `h` and `w`."""

    @staticmethod
    def forward(
        ctx: Any,
        graph: DistributedGraph,
        problem: Problem,
        ways: tuple[Way, Way],
        h: Tensor,
        w: Tensor,
    ) -> tuple[Tensor, ...]:
        """Save the own rows of the states, and no halo."""
        if problem.chosen is not None:
            w = w.clone()
            problem.clear_unused(w)
        states = _forward(graph, problem, ways[0], h, w)
        ctx.graph, ctx.problem, ctx.ways = graph, problem, ways
        ctx.save_for_backward(w, h, *states[:-1])
        ctx.set_materialize_grads(False)
        return tuple(states)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        """All processes come here together, whether or not their loss has a share."""
        w, *states = ctx.saved_tensors
        *_, need_h, need_w = ctx.needs_input_grad
        dh, dw = _backward(ctx.graph, ctx.problem, ctx.ways, grads, states, w, need_h, need_w)
        return None, None, None, dh, dw
