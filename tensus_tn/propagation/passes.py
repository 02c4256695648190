"""Single passes over some rows of a graph, in plain PyTorch; see `csrc/library.cpp` and `csrc/graph.h`.

The operators `tensus_tn::gather_mix` and `tensus_tn::mix_gather`, and those that select what they read,
are for those who put the passes of a propagation together themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tensus_tn.propagation.reference import Loops, add_up, as_segments, gather, mix
from tensus_tn.propagation.segments import Segments


def gather_mix(
    x: Tensor,
    halo: Tensor | None,
    w: Sequence[Tensor],
    edge_val: Tensor | None,
    seg_val: Tensor | None,
    loop: Tensor | None,
    seg_loop: Tensor | None,
    structure: Sequence[Tensor],
    pairs: Sequence[Tensor],
    near_rows: Tensor | None,
    far_rows: Sequence[Tensor],
    out: Sequence[Tensor],
    accumulate: Sequence[int],
    other: Sequence[Tensor],
    dw: Sequence[Tensor],
    from_tail: bool,
) -> None:
    """`y_l[n, q] (+)= sum_{i,p} w_l[i, p, q] (A^i x)[n, p]`, and the gradients of the weights."""
    graph = as_segments(structure, edge_val, seg_val)
    near = (x if halo is None else torch.cat([x, halo])).to(w[0].dtype)
    sums, own = gather(graph, near), _rows_of(near, _rows(graph, near_rows))
    loops = _loops(loop, seg_loop, pairs)
    for k, weight in enumerate(w):
        row = _rows(graph, far_rows[k] if far_rows else None)
        matrix = weight if from_tail else weight.transpose(1, 2)
        if out[k].numel():
            y = add_up(graph, mix(sums, matrix, graph.seg_rel))
            y = y if loops is None else y + loops.apply(own, matrix)
            _write(out[k], row, y, bool(accumulate[k]))
        if dw:
            far = _rows_of(other[k].to(near.dtype), row)
            products = torch.bmm(sums, far[graph.seg_row()].transpose(1, 2))
            total = torch.zeros_like(matrix).index_add(0, graph.seg_rel, products)
            total = total if loops is None else total + loops.grad_w(own, far)
            dw[k].copy_(total if from_tail else total.transpose(1, 2))


def mix_gather(
    y: Tensor,
    accumulate: bool,
    w: Sequence[Tensor],
    edge_val: Tensor | None,
    seg_val: Tensor | None,
    loop: Tensor | None,
    seg_loop: Tensor | None,
    structure: Sequence[Tensor],
    pairs: Sequence[Tensor],
    near_rows: Tensor | None,
    far_rows: Sequence[Tensor],
    other: Sequence[Tensor],
    halos: Sequence[Tensor],
    from_tail: bool,
) -> None:
    """`y[n, q] (+)= sum_i A^i (sum_l sum_p w_l[i, p, q] x_l[., p])[n]`."""
    graph = as_segments(structure, edge_val, seg_val)
    loops = _loops(loop, seg_loop, pairs)
    total = w[0].new_zeros(graph.num_rows, *y.shape[1:])
    for k, (x, weight) in enumerate(zip(other, w, strict=True)):
        x = torch.cat([x, halos[k]]) if halos else x
        matrix = weight.transpose(1, 2) if from_tail else weight
        far = _rows_of(x.to(weight.dtype), _rows(graph, far_rows[k] if far_rows else None))
        total += add_up(graph, mix(gather(graph, far), matrix, graph.seg_rel))
        total = total if loops is None else total + loops.apply(far, matrix)
    _write(y, _rows(graph, near_rows), total, accumulate)


def mark_columns(structure: Sequence[Tensor], rows: Tensor, used: Tensor, columns: int) -> Tensor:
    """The columns that edges of used relations (C,) lead from, to marked rows (N,)."""
    graph, marks = Segments(*structure[:4]), rows.new_zeros(columns)
    marked = used[graph.seg_rel.long()] & rows[graph.seg_row()]
    marks[graph.col[marked[graph.edge_seg()]].long()] = True
    return marks


def select_rows(
    structure: Sequence[Tensor], rows: Tensor, used: Tensor, column: Tensor
) -> list[Tensor]:
    """Some rows with some of their edges, row by row; see `csrc/library.cpp`."""
    row_ptr, seg_rel, seg_ptr, col = (part.tolist() for part in structure[:4])
    number, keep = column.tolist(), used.tolist()
    ends, ptr, segments, edges = [0], [0], list[int](), list[int]()
    for n in rows.tolist():
        for s in range(row_ptr[n], row_ptr[n + 1]) if n >= 0 else ():
            kept = [e for e in range(seg_ptr[s], seg_ptr[s + 1]) if number[col[e]] >= 0]
            if kept and keep[seg_rel[s]]:
                edges += kept
                segments.append(s)
                ptr.append(len(edges))
        ends.append(len(segments))
    relations = [seg_rel[s] for s in segments]
    lists = (ends, relations, ptr, [number[col[e]] for e in edges], segments, edges)
    types = (column.dtype, torch.int32, *[column.dtype] * 4)
    return [torch.tensor(ids, dtype=kind) for ids, kind in zip(lists, types, strict=True)]


def plan_passes(
    edges: Tensor,
    nodes: int,
    ranks: Sequence[int],
    tails: Sequence[int],
    heads: Sequence[int],
    chosen: Sequence[int] | None,
    backward: bool,
) -> list[int]:
    """No edge of the DAG is mixed first: plain PyTorch gathers, then mixes."""
    return [0] * len(tails)


def empty_state(like: Tensor, nodes: int, rank: int) -> Tensor:
    """Memory for a state of the type and the features of another."""
    return like.new_empty(nodes, rank, like.shape[2])


def _rows(graph: Segments, rows: Tensor | None) -> Tensor:
    return torch.arange(graph.num_rows) if rows is None else rows.long()


def _loops(loop: Tensor | None, seg_loop: Tensor | None, pairs: Sequence[Tensor]) -> Loops | None:
    if loop is None:
        return None
    if seg_loop is None:
        return Loops(loop, None, None)
    row_ptr, seg_rel = pairs
    empty = row_ptr.new_zeros(0)
    return Loops(loop, seg_loop - loop[seg_rel], Segments(row_ptr, seg_rel, empty, empty))


def _rows_of(state: Tensor, rows: Tensor) -> Tensor:
    """The rows of a state, zero where it lacks one."""
    padded = torch.cat([state, state.new_zeros(1, *state.shape[1:])])
    return padded[rows]


def _write(state: Tensor, rows: Tensor, values: Tensor, accumulate: bool) -> None:
    there = rows >= 0
    rows, values = rows[there], values[there]
    state[rows] = (values + state[rows] if accumulate else values).to(state.dtype)
