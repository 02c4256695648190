"""From checked edge lists and options to the parts of a RelationGraph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypedDict

import torch
from torch import Tensor

from tensus_tn.propagation import operators as operators  # registers them
from tensus_tn.propagation import segments
from tensus_tn.propagation.edge_lists import Edges
from tensus_tn.propagation.node_ids import RelationKey, relation_name
from tensus_tn.propagation.segments import Assembled, Segments

Normalize = str | None | Mapping[RelationKey, str | None]


class GraphOptions(TypedDict, total=False):
    """What every constructor of RelationGraph takes; its docstring explains them."""

    normalize: Normalize
    self_loops: bool
    identity: bool
    zero: bool
    dtype: torch.dtype | None


class Parts(NamedTuple):
    """The fields of a RelationGraph."""

    forward: Segments
    backward: Segments
    loop: Tensor
    relation_names: tuple[str, ...]
    node_counts: tuple[tuple[str, int], ...]


@torch.inference_mode(False)  # a graph that is built for inference may be trained on later
def assemble(
    relations: Sequence[Edges],
    counts: Mapping[str, int],
    *,
    normalize: Normalize = None,
    self_loops: bool = False,
    identity: bool = False,
    zero: bool = False,
    dtype: torch.dtype | None = None,
) -> Parts:
    """Add self-loops and special relations, sort all edges, sum duplicates and normalise."""
    dtype = checked_dtype(dtype_of_values(relations) if dtype is None else dtype)
    num_nodes = sum(counts.values())
    names = [edges.name for edges in relations] + ["identity"] * identity + ["zero"] * zero
    check_names(names)
    modes = modes_of(normalize, relations)
    folded = [False] * len(relations)
    if self_loops:
        learns = any(e.value is not None and e.value.requires_grad for e in relations)
        folded = [
            # A folded self-loop has no gradient, and its weight depends on those of its row.
            not learns and _can_fold(*pair, num_nodes)
            for pair in zip(relations, modes, strict=True)
        ]
        relations = [
            edges if fold else _with_diagonal(edges, num_nodes)
            for edges, fold in zip(relations, folded, strict=True)
        ]
    loop = torch.tensor([*folded, *[True] * identity, *[False] * zero], dtype=torch.float64)
    modes += [None] * (identity + zero)

    unweighted = not torch.compiler.is_compiling() and all(
        edges.value is None and not edges.added for edges in relations
    )
    structure = _structure(relations, num_nodes, positions=not unweighted)
    if unweighted and "sym" not in modes and not {"identity", "zero"} & {e.name for e in relations}:
        loop = loop.to(dtype)
        forward, backward = segments.normalize_counts(structure, modes, loop)
        return Parts(forward, backward, loop, tuple(names), tuple(counts.items()))
    forward, backward, _, places = structure
    value = _merged_values(relations, structure)
    value, seg_loop = segments.normalize(forward, backward, value, modes, loop)
    if any(edges.added for edges in relations):
        forward = replace(forward, edge_added=_added(relations, places, forward.num_edges))
    return fill(forward, backward, value, seg_loop, loop, names, counts, dtype)


def _structure(relations: Sequence[Edges], num_nodes: int, positions: bool) -> Assembled:
    ends = [(edges.rows, edges.cols) for edges in relations]
    return segments.assemble(
        [edges.row for edges in relations],
        [edges.col for edges in relations],
        [number for pair in ends for ids in pair for number in (ids.start, ids.stop - ids.start)],
        num_nodes,
        positions,
    )


def _merged_values(relations: Sequence[Edges], structure: Assembled) -> Tensor:
    """The values (float64) of the edges in the forward order, those of equal ones summed."""
    num_edges = structure.forward.num_edges
    if not structure.places.numel():
        ones = torch.ones(num_edges, dtype=torch.float64)
        return structure.times.double() if structure.times.numel() else ones
    values = [
        torch.ones(edges.row.numel(), dtype=torch.float64) if edges.value is None else edges.value
        for edges in relations
    ]
    merged = torch.zeros(num_edges, dtype=torch.float64)
    return merged.index_add(0, structure.places, torch.cat(values))


def fill(
    forward: Segments,
    backward: Segments,
    value: Tensor,
    seg_loop: Tensor,
    loop: Tensor,
    names: Sequence[str],
    counts: Mapping[str, int],
    dtype: torch.dtype,
) -> Parts:
    """Put the values (E,) and the self-loops' weights (S,), (C,) into the structure.

    Whatever makes a graph ends here, so that all graphs pass the same checks.
    """
    check_names(names)
    value, seg_loop, loop = value.to(dtype), seg_loop.to(dtype), loop.to(dtype)
    if torch.compiler.is_compiling():  # nothing may depend on values
        assert backward.edge_perm is not None
        forward = replace(forward, edge_val=value, seg_loop=seg_loop)
        backward = replace(backward, edge_val=value.detach().index_select(0, backward.edge_perm))
        return Parts(forward, backward, loop, tuple(names), tuple(counts.items()))
    check_values(forward, value, seg_loop, loop, names)
    assert backward.edge_perm is not None
    corrected = not torch.equal(seg_loop, loop[forward.seg_rel])
    transposed = value.detach()[backward.edge_perm]
    return Parts(
        replace(forward.with_values(value), seg_loop=seg_loop if corrected else None),
        replace(backward, edge_val=transposed)
        if value.requires_grad
        else backward.with_values(transposed),
        loop,
        tuple(names),
        tuple(counts.items()),
    )


def check_values(
    forward: Segments, value: Tensor, seg_loop: Tensor, loop: Tensor, names: Sequence[str]
) -> None:
    """Check what a graph may hold: values (E,), self-loops of segments (S,) and of relations (C,)."""
    for what, numbers in (("edge values", value), ("self-loops", seg_loop), ("self-loops", loop)):
        if not bool(numbers.isfinite().all()):
            raise ValueError(f"some {what} are not finite in {loop.dtype}")
    _check_loops(forward, seg_loop, loop, names)
    _check_special(forward, value, loop, names)


def checked_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype itself, if it may hold a graph's values."""
    if dtype not in (torch.float32, torch.float64):
        raise TypeError(f"a graph's values are float32 or float64, got {dtype}")
    return dtype


def dtype_of_values(relations: Sequence[Edges]) -> torch.dtype:
    """The type that holds all given values: theirs if they are floating, otherwise torch's default."""
    given = {edges.dtype for edges in relations} - {None}
    if not given:
        return torch.get_default_dtype()
    return torch.float64 if torch.float64 in given else torch.float32


def check_names(names: Sequence[str]) -> None:
    """Check that relations have names of their own."""
    for name, times in Counter(names).items():
        if times > 1:
            raise ValueError(f"two relations are named {name!r}")


def _check_loops(forward: Segments, seg_loop: Tensor, loop: Tensor, names: Sequence[str]) -> None:
    """Check that a relation whose empty rows have no self-loop has none at all."""
    stray = (loop[forward.seg_rel] == 0) & (seg_loop != 0)
    if bool(stray.any()):
        name = names[int(forward.seg_rel[stray][0])]
        raise ValueError(
            f"some rows of relation {name!r} have self-loops, but empty ones have none"
        )
    if forward.edge_added is not None:
        row = forward.seg_row()[forward.edge_seg()]
        if bool((row != forward.col)[forward.edge_added].any()):
            raise ValueError("some edges are called self-loops, but join two nodes")


def _check_special(forward: Segments, value: Tensor, loop: Tensor, names: Sequence[str]) -> None:
    """Check that `identity` and `zero` are what they are called: layers rely on it.

    Either is folded, without edges; or the identity has them, as a matrix that `to_scipy` gave.
    """
    for name in {"identity", "zero"}.intersection(names):
        relation = names.index(name)
        folded = float(loop[relation]) == (name == "identity")
        right = folded and not bool((forward.seg_rel == relation).any())
        if name == "identity" and not folded:
            right = _is_identity(forward, value, relation) and float(loop[relation]) == 0
        if not right:
            raise ValueError(
                f"the name {name!r} is reserved for such a matrix, without self-loops: give the "
                f"relation another name, or {name}=True in its place"
            )


def _is_identity(forward: Segments, value: Tensor, relation: int) -> bool:
    """Whether the edges of a relation are one from every node to itself, of value 1."""
    seg = forward.edge_seg()
    mine = forward.seg_rel[seg] == relation
    row, every = forward.seg_row()[seg][mine], torch.arange(forward.num_rows)
    joins = torch.equal(row, every) and torch.equal(forward.col[mine].long(), every)
    return joins and bool((value[mine] == 1).all())


def modes_of(normalize: Normalize, relations: Sequence[Edges]) -> list[str | None]:
    """The normalisation of every relation, checked against its values."""
    names = [edges.name for edges in relations]
    by_name: dict[str, str | None]
    if isinstance(normalize, Mapping):
        by_name = {relation_name(key): mode for key, mode in normalize.items()}
    else:
        by_name = dict.fromkeys(names, normalize)
    for name, mode in by_name.items():
        if name not in names:
            raise ValueError(f"normalize names {name!r}, which is not among {names}")
        if mode not in (None, "row", "sym"):
            raise ValueError(f"normalize must be None, 'row' or 'sym', got {mode!r}")
    for edges in relations:
        if not by_name.get(edges.name) or edges.value is None:
            continue
        if bool((edges.value < 0).any()):
            raise ValueError(f"relation {edges.name!r} has negative values: it can't be normalised")
        if not bool(edges.value.sum().isfinite()):  # then rows could be divided by infinity
            raise ValueError(
                f"relation {edges.name!r}: the sum of its values overflows, up to "
                f"{float(edges.value.max())}: it can't be normalised"
            )
    return [by_name.get(name) for name in names]


def _can_fold(edges: Edges, mode: str | None, num_nodes: int) -> bool:
    """Whether the self-loops of empty rows all have weight 1, so that they need no edge.

    Under "sym" a node that sends but does not receive has a smaller one.
    """
    if mode != "sym":
        return True
    if torch.compiler.is_compiling():  # nothing may depend on ids
        return False
    row, col = edges.ends()
    receives = torch.zeros(num_nodes, dtype=torch.bool)
    receives[row] = True
    return bool(receives[col].all())


def _with_diagonal(edges: Edges, num_nodes: int) -> Edges:
    """A + I as ordinary edges, those of I last."""
    nodes = torch.arange(num_nodes)
    ones = torch.ones(num_nodes, dtype=torch.float64)
    value = None if edges.value is None else torch.cat([edges.value, ones])
    row, col = (torch.cat([ids, nodes]) for ids in edges.ends())
    every = slice(0, num_nodes)
    return Edges(edges.name, row, col, every, every, value, edges.dtype, added=num_nodes)


def _added(relations: Sequence[Edges], places: Tensor, num_edges: int) -> Tensor:
    """Whether each edge, in the forward order, is an added self-loop and none that was given."""
    sizes = [(edges.row.numel(), edges.added) for edges in relations]
    given = torch.cat([torch.arange(size) < size - added for size, added in sizes])
    counts = torch.zeros(num_edges, dtype=torch.int32).index_add(0, places, given.int())
    return counts == 0
