"""The propagation operators in plain PyTorch, for machines and devices without the kernels.

One sparse product per state, as in the kernels, but with the sums of all segments in memory:
`(S, rank, F)` for `S` segments, never `C * N`. The sparse product is `embedding_bag`, which needs
no sorting, and its derivative is written out: no gradient ever runs through sparse values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from tensus_tn.propagation.arguments import Arguments, Wanted
from tensus_tn.propagation.segments import (
    Segments,
    count_scale,
    sort_into_segments,
    transpose,
)

_EDGES_AT_ONCE = (
    1 << 16
)  # edges whose rows are in memory at the same time, in the gradient of values


@dataclass(frozen=True)
class Loops:
    """The diagonals: `loop[i]`, and `correction` more on the (row, relation) of the segments."""

    loop: Tensor
    correction: Tensor | None
    pairs: Segments | None  # None only where nothing is corrected

    def apply(self, x: Tensor, w: Tensor) -> Tensor:
        """`sum_{i,p} D^i[n] w[i, p, q] x[n, p]`: (N, P, F) -> (N, Q, F)."""
        out = torch.einsum("npf,pq->nqf", x, torch.einsum("c,cpq->pq", self.loop, w))
        if self.correction is not None and self.pairs is not None:
            scaled = x[self.pairs.seg_row()] * self.correction[:, None, None]
            out = out + add_up(self.pairs, mix(scaled, w, self.pairs.seg_rel))
        return out

    def grad_w(self, x: Tensor, grad: Tensor) -> Tensor:
        """`sum_n D^i[n] <x[n, p], grad[n, q]>`: (C, P, Q)."""
        products = torch.einsum("npf,nqf->npq", x, grad)
        out = torch.einsum("c,pq->cpq", self.loop, products.sum(0))
        if self.correction is not None and self.pairs is not None:
            special = products[self.pairs.seg_row()] * self.correction[:, None, None]
            out = out.index_add(0, self.pairs.seg_rel, special)
        return out


def as_segments(
    parts: Sequence[Tensor], edge_val: Tensor | None, seg_val: Tensor | None
) -> Segments:
    """The structure that an operator is given, with its values."""
    row_ptr, seg_rel, seg_ptr, col = parts[:4]
    return Segments(row_ptr, seg_rel, seg_ptr, col, edge_val=edge_val, seg_val=seg_val)


def gather(segments: Segments, x: Tensor) -> Tensor:
    """`sum_e a_e x[col_e]` for every segment: (N, rank, F) -> (S, rank, F)."""
    sums = _bag_sum(x, segments.col, segments.seg_ptr, segments.edge_val)
    return sums if segments.seg_val is None else sums * segments.seg_val[:, None, None]


def add_up(segments: Segments, per_segment: Tensor) -> Tensor:
    """The sum over the segments of every row: (S, rank, F) -> (N, rank, F)."""
    every = torch.arange(len(per_segment), device=per_segment.device, dtype=segments.col.dtype)
    return _bag_sum(per_segment, every, segments.row_ptr, None)


def _bag_sum(x: Tensor, index: Tensor, ptr: Tensor, weight: Tensor | None) -> Tensor:
    """`sum_{k in ptr[b] .. ptr[b + 1]} weight[k] x[index[k]]` for every bag `b`."""
    shape = (len(ptr) - 1, *x.shape[1:])
    if index.numel() == 0 or x.numel() == 0:
        return x.new_zeros(shape)
    flat = x.reshape(len(x), -1)
    sums = embedding_bag(
        index, flat, ptr, mode="sum", per_sample_weights=weight, include_last_offset=True
    )
    return sums.reshape(shape)


def mix(sums: Tensor, w: Tensor, rel: Tensor) -> Tensor:
    """`sum_p w[rel_s, p, q] sums[s, p]`: (S, P, F) -> (S, Q, F)."""
    return torch.bmm(w[rel].transpose(1, 2), sums)


def _only_chosen(w: Tensor, given: Arguments) -> Tensor:
    """`w`, or its gradient, with zeros where an edge does not use a relation."""
    if given.chosen is None:
        return w
    sizes = torch.tensor([p * q for p, q in given.shapes])
    flags = torch.tensor(given.chosen).reshape(len(sizes), -1)
    used = flags.flatten().repeat_interleave(sizes.repeat_interleave(flags.shape[1]))
    return torch.where(used.bool().to(w.device), w, 0.0)


def _as_loops(loop: Tensor | None, seg_loop: Tensor | None, forward: Segments) -> Loops | None:
    if loop is None:
        return None
    return Loops(loop, None if seg_loop is None else seg_loop - loop[forward.seg_rel], forward)


def at(state: Tensor, rows: Tensor) -> Tensor:
    """The rows of a state that is stored whole."""
    return state.index_select(0, rows)


def only_at(state: Tensor, rows: Tensor) -> Tensor:
    """A whole state, with zeros in all rows but these."""
    return _spread(at(state, rows), rows, len(state))


def _spread(part: Tensor, rows: Tensor, nodes: int) -> Tensor:
    """A whole state, given some rows of it; the others are zero."""
    return part.new_zeros(nodes, *part.shape[1:]).index_copy(0, rows.long(), part)


def _with_all_rows(given: Arguments) -> Arguments:
    """The same over whole states: what is not needed of `h` counts as zero."""
    return given._replace(h=only_at(given.h, given.needed[0]), needed=[])


def propagate(given: Arguments) -> list[Tensor]:
    """The states 1 .. K, at their needed rows where there are such; one gather for every state."""
    if given.needed:
        whole = propagate(_with_all_rows(given))
        return [at(state, rows) for state, rows in zip(whole, given.needed_rows[1:], strict=True)]
    if given.group_sizes is not None:
        parts = [propagate(group) for group in given.by_group()]
        return [torch.cat(columns, 2) for columns in zip(*parts, strict=True)]
    h, ranks, tails, heads = given.h, given.ranks, given.tails, given.heads
    with torch.autocast(h.device.type, enabled=False):
        graph = as_segments(given.forward, given.edge_val, given.seg_val)
        loops = _as_loops(given.loop, given.seg_loop, graph)
        w = _only_chosen(given.w, given)
        weights = [weight[0] for weight in given.weights(w)]
        states = [h.to(w.dtype)]
        for k, rank in enumerate(ranks):
            if k > 0:
                states.append(w.new_zeros(h.shape[0], rank, h.shape[2]))
        for j, state in enumerate(states[:-1]):
            sums = gather(graph, state)
            for e in (e for e, tail in enumerate(tails) if tail == j):
                states[heads[e]] += add_up(graph, mix(sums, weights[e], graph.seg_rel))
                if loops is not None:
                    states[heads[e]] += loops.apply(state, weights[e])
        return [state.to(h.dtype) for state in states[1:]]


def propagate_backward(
    grads: Sequence[Tensor],
    grad_nodes: Sequence[int],
    states: Sequence[Tensor],
    given: Arguments,
    wanted: Wanted,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of h, w and edge_val, empty where not wanted; one gather for every state."""
    if given.needed:
        nodes, needed = len(given.h), given.needed_rows
        dh, of_w, of_values = propagate_backward(
            [_spread(g, needed[k], nodes) for g, k in zip(grads, grad_nodes, strict=True)],
            grad_nodes,
            [_spread(s, rows, nodes) for s, rows in zip(states, needed[1:], strict=True)],
            _with_all_rows(given),
            wanted,
        )
        return only_at(dh, needed[0]) if wanted.h else dh, of_w, of_values
    if given.group_sizes is not None:
        return _backward_by_group(grads, grad_nodes, states, given, wanted)
    h, ranks, tails, heads = given.h, given.ranks, given.tails, given.heads
    with torch.autocast(h.device.type, enabled=False):
        graph = as_segments(given.forward, given.edge_val, given.seg_val)
        transposed = as_segments(given.backward, given.back_edge_val, given.back_seg_val)
        loops = _as_loops(given.loop, given.seg_loop, graph)
        w = _only_chosen(given.w, given)
        weights = [weight[0] for weight in given.weights(w)]
        state = [h.to(w.dtype), *(s.to(w.dtype) for s in states)]
        grad = [torch.zeros_like(s) for s in state]
        for node, start in zip(grad_nodes, grads, strict=True):
            grad[node] += start
        dw = [torch.zeros_like(weight) for weight in weights]
        for k in range(len(ranks) - 1, 0, -1):
            sums = gather(transposed, grad[k])
            for e in (e for e, head in enumerate(heads) if head == k):
                x, weight_t = state[tails[e]], weights[e].transpose(1, 2)
                grad[tails[e]] += add_up(transposed, mix(sums, weight_t, transposed.seg_rel))
                products = torch.bmm(x[transposed.seg_row()], sums.transpose(1, 2))
                dw[e].index_add_(0, transposed.seg_rel, products)
                if loops is not None:
                    grad[tails[e]] += loops.apply(grad[k], weight_t)
                    dw[e] += loops.grad_w(x, grad[k])
        of_w = torch.cat([d.reshape(-1) for d in dw])
        empty_h = h.new_empty(0, *h.shape[1:])
        return (
            grad[0].to(h.dtype) if wanted.h else empty_h,
            _only_chosen(of_w, given) if wanted.w else w.new_empty(0),
            _edge_gradient(graph, state, weights, grad, tails, heads)
            if wanted.values
            else w.new_empty(0),
        )


def _backward_by_group(
    grads: Sequence[Tensor],
    grad_nodes: Sequence[int],
    states: Sequence[Tensor],
    given: Arguments,
    wanted: Wanted,
) -> tuple[Tensor, Tensor, Tensor]:
    sizes = list(given.group_sizes or ())
    grads_of = [grad.split(sizes, 2) for grad in grads]
    states_of = [state.split(sizes, 2) for state in states]
    dh, dw, dvalues = zip(
        *(
            propagate_backward(
                [grad[g] for grad in grads_of],
                grad_nodes,
                [state[g] for state in states_of],
                group,
                wanted,
            )
            for g, group in enumerate(given.by_group())
        ),
        strict=True,
    )
    return torch.cat(dh, 2), torch.cat(dw), torch.stack(dvalues).sum(0)


def _edge_gradient(
    graph: Segments,
    state: list[Tensor],
    weights: list[Tensor],
    grad: list[Tensor],
    tails: Sequence[int],
    heads: Sequence[int],
) -> Tensor:
    """`da_e = <H_j[col_e], sum_k w_jk(i) G_k[row_e]>`, summed over the tails `j`."""
    owner, row = graph.edge_seg(), graph.seg_row()
    out = weights[0].new_zeros(len(graph.col))
    for j in sorted(set(tails)):
        mine = [e for e, tail in enumerate(tails) if tail == j]
        of_sums = sum(
            mix(grad[heads[e]][row], weights[e].transpose(1, 2), graph.seg_rel) for e in mine
        )
        assert isinstance(of_sums, Tensor)
        for part in torch.arange(len(out), device=out.device).split(_EDGES_AT_ONCE):
            out[part] += torch.einsum("epf,epf->e", state[j][graph.col[part]], of_sums[owner[part]])
    return out


def assemble(
    rows: Sequence[Tensor],
    cols: Sequence[Tensor],
    ranges: Sequence[int],
    num_nodes: int,
    positions: bool,
    wide: bool,
) -> list[Tensor]:
    """The parts of a structure and of its transpose, as `segments.assemble` has them."""
    row, col = (
        torch.cat(
            [torch.zeros(0, dtype=torch.int64), *(x + s for x, s in zip(ids, start, strict=True))]
        )
        for ids, start in ((rows, ranges[::4]), (cols, ranges[2::4]))
    )
    sizes = torch.tensor([len(ids) for ids in rows], dtype=torch.int64)
    rel = torch.repeat_interleave(torch.arange(len(rows)), sizes)
    forward, order, start = sort_into_segments(row, rel, col, num_nodes, len(rows))
    backward = transpose(forward, len(rows))
    places = torch.zeros(len(row) if positions else 0, dtype=torch.int64)
    if positions:
        runs = torch.zeros_like(order)
        runs[start[1:]] = 1
        places[order] = runs.cumsum(0)
    times = torch.cat([start, start.new_tensor([len(row)])]).diff()
    times = times if len(start) < len(row) else times[:0]
    parts = [forward.row_ptr, forward.seg_rel, forward.seg_ptr, forward.col]
    parts += [backward.row_ptr, backward.seg_rel, backward.seg_ptr, backward.col]
    index = torch.int64 if wide else torch.int32
    parts = [*parts, cast(Tensor, backward.edge_perm), times, places]
    return [part if k in (1, 5) else part.to(index) for k, part in enumerate(parts)]


def normalize_counts(
    seg_rel: Tensor,
    seg_ptr: Tensor,
    perm: Tensor,
    times: Tensor,
    divide: Sequence[int],
    loop: Tensor,
) -> list[Tensor]:
    """Values, self-loops and values of the transpose, as `segments.normalize_counts` has them."""
    counts = times.double() if times.numel() else torch.ones(perm.numel(), dtype=torch.float64)
    segments = Segments(row_ptr=seg_ptr[:0], seg_rel=seg_rel, seg_ptr=seg_ptr, col=perm)
    loops = loop[seg_rel].double()
    scale = count_scale(segments, counts, ["row" if d else None for d in divide], loop.double())
    value, seg_loop = (
        (counts * scale[segments.edge_seg()]).to(loop.dtype),
        (loops * scale).to(loop.dtype),
    )
    parts = [value if times.numel() else scale.to(loop.dtype), seg_loop, value[perm]]
    if not times.numel() and bool((scale == 1).all()):
        parts[0] = parts[2] = value[:0]
    if bool(((scale == 1) | (loops == 0)).all()):
        parts[1] = seg_loop[:0]
    return parts
