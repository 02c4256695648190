"""The sparse structure of a relation graph: non-empty (row, relation) pairs in CSR form.

Edges are sorted by (row, relation, column). A *segment* is a run of edges with the same row and
relation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import torch
from torch import Tensor

from tensus_tn.propagation.node_ids import require_ids

#: Sizes from here on need 64-bit indices (a module constant, so that tests can lower it).
INT32_LIMIT = 2**31

_ROW_POWER = {None: 0.0, "row": -1.0, "sym": -0.5}


@dataclass(frozen=True, eq=False)
class Segments:
    """`S` segments and `E` edges over `N` rows; see `RelationGraph` for the meaning of a value.

    row_ptr   (N + 1,)  segments of row n are row_ptr[n] .. row_ptr[n + 1]
    seg_rel   (S,)      int32, the relation of a segment, ascending within a row
    seg_ptr   (S + 1,)  edges of segment s are seg_ptr[s] .. seg_ptr[s + 1]
    col       (E,)      the node at the other end, ascending within a segment
    seg_val   (S,)      one value per segment, or None
    edge_val  (E,)      one value per edge, or None; where both are None every value is 1
    seg_loop  (S,)      weight of the segment's folded self-loop, or None where it equals
                        the relation's own `loop` everywhere
    edge_added (E,)     whether an edge is nothing but an added self-loop, one that is not folded;
                        None where no edge is
    edge_perm (E,)      in the transpose: the position of an edge in the forward order
    parts, long_rows, short_rows  of a graph on a GPU, the order of its rows: see `order_rows`
    """

    row_ptr: Tensor
    seg_rel: Tensor
    seg_ptr: Tensor
    col: Tensor
    seg_val: Tensor | None = None
    edge_val: Tensor | None = None
    seg_loop: Tensor | None = None
    edge_added: Tensor | None = None
    edge_perm: Tensor | None = None
    parts: Tensor | None = None
    long_rows: Tensor | None = None
    short_rows: Tensor | None = None

    @property
    def num_rows(self) -> int:
        """The number of rows: receiving nodes."""
        return self.row_ptr.numel() - 1

    @property
    def num_segments(self) -> int:
        """The number of non-empty (row, relation) pairs."""
        return self.seg_rel.numel()

    @property
    def num_edges(self) -> int:
        """The number of stored edges."""
        return self.col.numel()

    @property
    def nbytes(self) -> int:
        """The memory that all arrays take."""
        arrays = (getattr(self, f.name) for f in fields(self))
        return sum(array.nbytes for array in arrays if isinstance(array, Tensor))

    def seg_row(self) -> Tensor:
        """The row of every segment, (S,)."""
        return owners(self.row_ptr, self.num_segments)

    def edge_seg(self) -> Tensor:
        """The segment of every edge, (E,)."""
        return owners(self.seg_ptr, self.num_edges)

    def structure(self) -> list[Tensor]:
        """What the operators take: the indices, in the transpose `edge_perm`, then any order."""
        more = (self.edge_perm, self.parts, self.long_rows, self.short_rows)
        given = [tensor for tensor in more if tensor is not None]
        return [self.row_ptr, self.seg_rel, self.seg_ptr, self.col, *given]

    def values(self, dtype: torch.dtype) -> Tensor:
        """The value of every edge, (E,)."""
        if self.edge_val is not None:
            return self.edge_val
        if self.seg_val is not None:
            return self.seg_val[self.edge_seg()]
        return torch.ones(self.num_edges, dtype=dtype, device=self.col.device)

    def loops(self, loop: Tensor) -> Tensor:
        """The weight of every segment's self-loop, (S,), given that of the relations, (C,)."""
        return loop[self.seg_rel] if self.seg_loop is None else self.seg_loop

    def with_values(self, values: Tensor) -> Segments:
        """The same structure with `values` (E,), kept once per segment where that is enough."""
        if values.requires_grad:
            return replace(self, seg_val=None, edge_val=values)
        first = values[self.seg_ptr[:-1]]
        if not torch.equal(values, first[self.edge_seg()]):
            return replace(self, seg_val=None, edge_val=values)
        unit = bool((first == 1).all())
        return replace(self, seg_val=None if unit else first, edge_val=None)

    def apply(self, move: Callable[[Tensor], Tensor]) -> Segments:
        """The same structure with every tensor replaced by `move(tensor)`."""
        tensors = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{k: move(t) for k, t in tensors.items() if t is not None})


class RowOrder(NamedTuple):
    """In which order CUDA kernels take rows: see `order_rows`."""

    parts: Tensor
    long_rows: Tensor
    short_rows: Tensor


def order_rows(row_ptr: Tensor, seg_ptr: Tensor, most: int) -> RowOrder:
    """The rows with most edges first; those with more than `most` in parts of at most so many.

    Returns:
        The parts (M, 3): the row of each, and where its edges begin and end; the rows that are
        split (R, 3): each row, its first part and how many it has; and the other rows (N - R,).

    Example:
        >>> parts, long_rows, short_rows = order_rows(
        ...     torch.tensor([0, 1, 2, 3]), torch.tensor([0, 1, 6, 8]), most=2
        ... )
        >>> parts
        tensor([[1, 1, 2],
                [1, 2, 4],
                [1, 4, 6]])
        >>> long_rows, short_rows
        (tensor([[1, 0, 3]]), tensor([2, 0]))
    """
    first = seg_ptr[row_ptr.long()].long()
    degree, rows = first.diff().sort(descending=True, stable=True)
    longer = int((degree > most).sum())
    split, degree = rows[:longer], degree[:longer]
    counts = (degree + most - 1) // most
    ptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    place = owners(ptr)
    number = torch.arange(len(place), device=place.device) - ptr[place]
    begin, end = (
        first[split[place]] + n * degree[place] // counts[place] for n in (number, number + 1)
    )
    parts = torch.stack([split[place], begin, end], 1)
    long_rows = torch.stack([split, ptr[:-1], counts], 1)
    return RowOrder(*(each.to(row_ptr.dtype) for each in (parts, long_rows, rows[longer:])))


def owners(ptr: Tensor, total: int | None = None) -> Tensor:
    """Which of the intervals `ptr[i] .. ptr[i + 1]` every position belongs to.

    Example:
        >>> owners(torch.tensor([0, 2, 2, 3]))
        tensor([0, 0, 2])
    """
    every = torch.arange(ptr.numel() - 1, device=ptr.device)
    return torch.repeat_interleave(every, ptr.diff(), output_size=total)


def index_dtype(*sizes: int) -> torch.dtype:
    """The narrowest index type that holds every one of `sizes`."""
    return torch.int32 if max(sizes) < INT32_LIMIT else torch.int64


def sort_into_segments(
    row: Tensor, rel: Tensor, col: Tensor, num_nodes: int, num_relations: int
) -> tuple[Segments, Tensor, Tensor]:
    """Sort edges into segments and merge duplicates.

    Returns the structure, the sorting permutation, and where each run of equal edges starts
    in the sorted order.
    """
    node_bits = max(num_nodes - 1, 0).bit_length()
    rel_bits = max(num_relations - 1, 0).bit_length()
    if 2 * node_bits + rel_bits > 63:
        raise ValueError(
            f"{num_nodes} nodes with {num_relations} relations do not fit a 64-bit edge key"
        )
    key = row << rel_bits  # in place from here: fresh memory costs more than the arithmetic
    key |= rel
    key <<= node_bits
    key |= col
    key, order = torch.sort(key, stable=True)
    start = _run_starts(key)
    key = key if start.numel() == key.numel() else key[start]

    pair = key >> node_bits
    seg_start = _run_starts(pair)
    pair = pair[seg_start]
    row_counts = torch.bincount(pair >> rel_bits, minlength=num_nodes)
    dtype = index_dtype(num_nodes, key.numel())
    row_ptr = torch.cat([row_counts.new_zeros(1), row_counts.cumsum(0)])
    seg_ptr = torch.cat([seg_start, seg_start.new_tensor([key.numel()])])
    segments = Segments(
        row_ptr=row_ptr.to(dtype),
        seg_rel=(pair & ((1 << rel_bits) - 1)).to(torch.int32),
        seg_ptr=seg_ptr.to(dtype),
        col=(key & ((1 << node_bits) - 1)).to(dtype),
    )
    return segments, order, start


class Assembled(NamedTuple):
    """The structure of lists of edges, without values.

    Attributes:
        forward: The edges by row, relation and column, each once.
        backward: The transpose, with its `edge_perm`.
        times: How often every edge was given, (E,); empty if each was once.
        places: The place of every given edge in the forward order, if they were wanted.
    """

    forward: Segments
    backward: Segments
    times: Tensor
    places: Tensor


def assemble(
    rows: Sequence[Tensor],
    cols: Sequence[Tensor],
    ranges: Sequence[int],
    num_nodes: int,
    positions: bool,
) -> Assembled:
    """The structure of several lists of edges, one a relation, and its transpose, without values.

    Equal edges of a relation become one.

    Args:
        rows: The receiving nodes of each list, int64 (E_i,).
        cols: The sending ones.
        ranges: For each list where its receiving nodes begin, how many there are, and the same of
            the sending ones: `rows` and `cols` count from there.
        num_nodes: Of the graph.
        positions: Whether to return the place of every given edge in the forward order.
    """
    if num_nodes >= 2**31:
        raise ValueError(f"{num_nodes} nodes are too many: a graph has less than 2^31")
    wide = index_dtype(num_nodes, sum(row.numel() for row in rows)) == torch.int64
    parts = torch.ops.tensus_tn.assemble(
        list(rows), list(cols), list(ranges), num_nodes, positions, wide
    )
    forward, backward = Segments(*parts[:4]), Segments(*parts[4:8])
    return Assembled(forward, replace(backward, edge_perm=parts[8]), *parts[9:])


def check_order(s: Segments, num_relations: int) -> None:
    """Check that indices are in range, and edges sorted by (row, relation, column), each once."""
    for name, ptr, least, total in (
        ("row_ptr", s.row_ptr, 0, s.num_segments),
        ("seg_ptr", s.seg_ptr, 1, s.num_edges),
    ):
        if ptr[0] != 0 or ptr[-1] != total or bool((ptr.diff() < least).any()):
            raise ValueError(f"{name} does not rise from 0 to {total}")
    for what, ids, ptr, count in (
        ("relation", s.seg_rel, s.row_ptr, num_relations),
        ("node", s.col, s.seg_ptr, s.num_rows),
    ):
        require_ids(what, ids, count)
        rises = ids.diff() > 0
        first = ptr[(ptr > 0) & (ptr < ids.numel())].long()  # of the next row, or segment
        rises[first - 1] = True
        if not bool(rises.all()):
            raise ValueError(f"some {what}s are not in order, or there twice")


def check_transpose(forward: Segments, backward: Segments) -> None:
    """Check that `edge_perm` leads from the edges of the transpose to the same ones, both sorted."""
    assert backward.edge_perm is not None
    perm = require_ids("edge_perm", backward.edge_perm, forward.num_edges)
    seg, back_seg = forward.edge_seg()[perm], backward.edge_seg()
    same = (
        torch.equal(forward.seg_row()[seg], backward.col.long())
        and torch.equal(forward.col[perm].long(), backward.seg_row()[back_seg])
        and torch.equal(forward.seg_rel[seg], backward.seg_rel[back_seg])
    )
    if not same:
        raise ValueError("the transpose has other edges")


def transpose(forward: Segments, num_relations: int) -> Segments:
    """The transposed structure, without values; `edge_perm` leads back to the forward order."""
    seg = forward.edge_seg()
    row, rel = forward.seg_row()[seg], forward.seg_rel[seg].long()
    backward, order, _ = sort_into_segments(
        forward.col.long(), rel, row, forward.num_rows, num_relations
    )
    return replace(backward, edge_perm=order.to(forward.col.dtype))


def normalize_counts(
    assembled: Assembled, modes: Sequence[str | None], loop: Tensor
) -> tuple[Segments, Segments]:
    """What `normalize` does where each edge is worth as often as it was given, and no mode is "sym".

    `loop` (C,) has the type of the values. Returns both directions with the values that they need.
    """
    forward, backward, times, _ = assembled
    divide = [int(mode == "row") for mode in modes]
    value, seg_loop, transposed = torch.ops.tensus_tn.normalize_counts(
        forward.seg_rel, forward.seg_ptr, backward.edge_perm, times, divide, loop
    )
    if value.numel():
        name = "edge_val" if times.numel() else "seg_val"
        forward = replace(forward, **{name: value})
        backward = replace(backward, edge_val=transposed)
    return replace(forward, seg_loop=seg_loop if seg_loop.numel() else None), backward


def count_scale(
    segments: Segments, counts: Tensor, modes: Sequence[str | None], loop: Tensor
) -> Tensor:
    """What `normalize_counts` multiplies the counts (E,) of every segment by, (S,)."""
    total = loop[segments.seg_rel].index_add(0, segments.edge_seg(), counts)
    divided = torch.tensor([mode == "row" for mode in modes], dtype=torch.bool)[segments.seg_rel]
    return torch.where(divided, 1 / total, 1.0)


def normalize(
    forward: Segments,
    backward: Segments,
    value: Tensor,
    modes: Sequence[str | None],
    loop: Tensor,
) -> tuple[Tensor, Tensor]:
    """Scale every relation of A + diag(loop) by its row sums, or by the roots of both sums.

    `value` (E,) and `loop` (C,) are float64. Returns the values (E,) and the self-loops' weights
    of the non-empty pairs (S,). A sum of zero (all values are zero) scales by zero.
    """
    scale = row_scale(forward, value, modes, loop)
    scaled = value * scale[forward.edge_seg()]
    seg_loop = loop[forward.seg_rel] * scale
    if "sym" in modes:
        perm = backward.edge_perm
        assert perm is not None
        col_scale = column_scale(backward, value[perm], modes, loop)
        scaled[perm] *= col_scale[backward.edge_seg()]
        if not torch.compiler.is_compiling():  # then no self-loop is folded under "sym"
            seg_loop *= at_pairs(backward, col_scale, forward, len(modes))
    return scaled, seg_loop


def row_scale(
    forward: Segments, value: Tensor, modes: Sequence[str | None], loop: Tensor
) -> Tensor:
    """What the values of every segment (S,) are multiplied by, for the sum of its row."""
    power = torch.tensor([_ROW_POWER[mode] for mode in modes], dtype=torch.float64)
    rel = forward.seg_rel.long()
    return _power(_segment_sum(value, forward.seg_ptr) + loop[rel], power[rel])


def column_scale(
    backward: Segments, value: Tensor, modes: Sequence[str | None], loop: Tensor
) -> Tensor:
    """The same for the sum of its column, on the segments of the transpose: 1 but under "sym"."""
    power = torch.tensor([-0.5 if mode == "sym" else 0.0 for mode in modes], dtype=torch.float64)
    rel = backward.seg_rel.long()
    return _power(_segment_sum(value, backward.seg_ptr) + loop[rel], power[rel])


def at_pairs(backward: Segments, values: Tensor, forward: Segments, num_relations: int) -> Tensor:
    """What the segments of the transpose have, for those of the same pairs; 1 where there is none."""
    return _lookup(_pairs(backward, num_relations), values, _pairs(forward, num_relations))


def _power(total: Tensor, power: Tensor) -> Tensor:
    """The sums to their powers, where 0 to a negative power is 0."""
    none = (total == 0) & (power < 0)
    return torch.where(none, 0.0, total.masked_fill(none, 1.0) ** power)  # no NaN in a gradient


def _segment_sum(value: Tensor, seg_ptr: Tensor) -> Tensor:
    sums = value.new_zeros(seg_ptr.numel() - 1)
    return sums.index_add(0, owners(seg_ptr, value.numel()), value)


def _pairs(segments: Segments, num_relations: int) -> Tensor:
    """One ascending number for the (row, relation) of every segment."""
    return segments.seg_row() * num_relations + segments.seg_rel


def _lookup(keys: Tensor, values: Tensor, wanted: Tensor) -> Tensor:
    """The value of each wanted key among the sorted `keys`, 1 where there is none."""
    if not keys.numel():
        return values.new_ones(wanted.numel())
    at = torch.searchsorted(keys, wanted).clamp(max=keys.numel() - 1)
    return torch.where(keys[at] == wanted, values[at], 1.0)


def _run_starts(sorted_key: Tensor) -> Tensor:
    """Where a new value starts in a sorted vector."""
    new = torch.ones(sorted_key.numel(), dtype=torch.bool)
    torch.ne(sorted_key[1:], sorted_key[:-1], out=new[1:])
    return new.nonzero().squeeze(1)
