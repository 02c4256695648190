"""The operators `tensus_tn::propagate`, its backward pass and those on graphs, completed for torch.

The extension defines their schemas and kernels, for the CPU and, where it was built with nvcc, for
CUDA. Here they get a plain PyTorch implementation for whatever has no kernel, shapes for tracing,
and derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tensus_tn.propagation import derivatives, extension, passes, reference, rows, sampling
from tensus_tn.propagation.arguments import Arguments, Wanted

# As in csrc/library.cpp, where they are defined if the extension is there (a test compares).
SCHEMAS = {
    "propagate": (
        "(Tensor h, Tensor w, Tensor? edge_val, Tensor? seg_val, Tensor? back_edge_val, "
        "Tensor? back_seg_val, Tensor? loop, Tensor? seg_loop, Tensor[] forward, "
        "Tensor[] backward, int[] ranks, int[] tails, int[] heads, int[]? chosen, "
        "Tensor[] needed, int[]? group_sizes) -> Tensor[]"
    ),
    "propagate_backward": (
        "(Tensor[] grads, int[] grad_nodes, Tensor[] states, Tensor h, Tensor w, Tensor? edge_val, "
        "Tensor? seg_val, Tensor? back_edge_val, Tensor? back_seg_val, Tensor? loop, "
        "Tensor? seg_loop, Tensor[] forward, Tensor[] backward, int[] ranks, int[] tails, "
        "int[] heads, int[]? chosen, Tensor[] needed, int[]? group_sizes, bool need_h, bool need_w, "
        "bool need_values) -> (Tensor, Tensor, Tensor)"
    ),
    "needed_rows": (
        "(Tensor rows, Tensor? support, Tensor? loop, Tensor? seg_loop, Tensor[] forward, "
        "Tensor[] backward, int[] tails, int[] heads, int[]? chosen, int states, int relations) "
        "-> Tensor[]"
    ),
    "gather_mix": (
        "(Tensor x, Tensor? halo, Tensor[] w, Tensor? edge_val, Tensor? seg_val, Tensor? loop, "
        "Tensor? seg_loop, Tensor[] structure, Tensor[] pairs, Tensor? near_rows, Tensor[] far_rows, "
        "Tensor(a!)[] out, int[] accumulate, Tensor[] other, Tensor(b!)[] dw, bool from_tail) -> ()"
    ),
    "mix_gather": (
        "(Tensor(a!) y, bool accumulate, Tensor[] w, Tensor? edge_val, Tensor? seg_val, "
        "Tensor? loop, Tensor? seg_loop, Tensor[] structure, Tensor[] pairs, Tensor? near_rows, "
        "Tensor[] far_rows, Tensor[] other, Tensor[] halos, bool from_tail) -> ()"
    ),
    "mark_columns": "(Tensor[] structure, Tensor rows, Tensor used, int columns) -> Tensor",
    "select_rows": "(Tensor[] structure, Tensor rows, Tensor used, Tensor column) -> Tensor[]",
    "plan_passes": (
        "(Tensor edges, int nodes, int[] ranks, int[] tails, int[] heads, int[]? chosen, "
        "bool backward) -> int[]"
    ),
    "empty_state": "(Tensor like, int nodes, int rank) -> Tensor",
    "assemble": (
        "(Tensor[] rows, Tensor[] cols, int[] ranges, int nodes, bool positions, bool wide) "
        "-> Tensor[]"
    ),
    "normalize_counts": (
        "(Tensor seg_rel, Tensor seg_ptr, Tensor perm, Tensor times, int[] divide, Tensor loop) "
        "-> Tensor[]"
    ),
    "sample_block": (
        "(Tensor seeds, Tensor[] forward, int[] fan_out, int relations, int seed) -> Tensor[]"
    ),
}


def _check_extension() -> None:
    """Its operators can't be replaced once it is loaded: if they are others, nothing works."""
    for name, schema in SCHEMAS.items():
        operator = getattr(torch.ops.tensus_tn, name, None)
        if operator is None or str(operator.default._schema) != f"tensus_tn::{name}{schema}":
            found = "none" if operator is None else operator.default._schema
            raise ImportError(
                f"the compiled extension {extension._C.__file__} was built from other sources: "
                f"expected the operator tensus_tn::{name}{schema}, found {found}. "
                "Build it anew (`make test`, or install the package again), "
                "or set TENSUS_BACKEND=reference for plain PyTorch"
            )


_library = torch.library.Library("tensus_tn", "FRAGMENT")
if extension._C is None:
    for _name, _schema in SCHEMAS.items():
        _library.define(_name + _schema)
else:
    _check_extension()


def _as_backward(
    inputs: Sequence[Any],
) -> tuple[list[Tensor], list[int], list[Tensor], Arguments, Wanted]:
    """The arguments of `propagate_backward`: gradients, their states, all states, and the rest."""
    grads, grad_nodes, states, *rest = inputs
    end = -len(Wanted._fields)
    return grads, grad_nodes, states, Arguments(*rest[:end]), Wanted(*rest[end:])


#: The operators in plain PyTorch, which take what their schemas say.
PLAIN: dict[str, Callable[..., Any]] = {
    "propagate": lambda *inputs: reference.propagate(Arguments(*inputs)),
    "propagate_backward": lambda *inputs: reference.propagate_backward(*_as_backward(inputs)),
    "assemble": reference.assemble,
    "normalize_counts": reference.normalize_counts,
    "needed_rows": rows.needed_rows,
    "sample_block": sampling.sample_block,
    "gather_mix": passes.gather_mix,
    "mix_gather": passes.mix_gather,
    "mark_columns": passes.mark_columns,
    "select_rows": passes.select_rows,
    "plan_passes": passes.plan_passes,
    "empty_state": passes.empty_state,
}
for _name, _function in PLAIN.items():
    _library.impl(_name, _function, "CompositeExplicitAutograd")


@torch.library.register_fake("tensus_tn::assemble", lib=_library)
def _(
    rows: list[Tensor],
    cols: list[Tensor],
    ranges: list[int],
    nodes: int,
    positions: bool,
    wide: bool,
) -> list[Tensor]:
    new_size: Callable[[], Any] = torch.library.get_ctx().new_dynamic_size
    edges, segments, back_segments, times = new_size(), new_size(), new_size(), new_size()
    given = sum(ids.shape[0] for ids in rows) if positions else 0

    def empty(size: int, dtype: torch.dtype = torch.int64 if wide else torch.int32) -> Tensor:
        return torch.empty(size, dtype=dtype)

    def structure(segments: int) -> list[Tensor]:
        relations = empty(segments, torch.int32)
        return [empty(nodes + 1), relations, empty(segments + 1), empty(edges)]

    parts = [*structure(segments), *structure(back_segments)]
    return [*parts, empty(edges), empty(times), empty(given)]


@torch.library.register_fake("tensus_tn::normalize_counts", lib=_library)
def _(
    seg_rel: Tensor, seg_ptr: Tensor, perm: Tensor, times: Tensor, divide: list[int], loop: Tensor
) -> list[Tensor]:
    new_size: Callable[[], Any] = torch.library.get_ctx().new_dynamic_size
    return [loop.new_empty(new_size()) for _ in range(3)]


@torch.library.register_fake("tensus_tn::sample_block", lib=_library)
def _(
    seeds: Tensor, forward: list[Tensor], fan_out: list[int], relations: int, seed: int
) -> list[Tensor]:
    new_size: Callable[[], Any] = torch.library.get_ctx().new_dynamic_size
    nodes, segments, back_segments, edges = (new_size() for _ in range(4))
    numbers = [seeds.new_empty(size) for size in (nodes, seeds.shape[0], segments, edges)]
    ways = [(nodes + 1, size, size + 1, edges) for size in (segments, back_segments)]
    parts = [size for way in ways for size in way] + [edges]
    return numbers + [seeds.new_empty(size, dtype=torch.int32) for size in parts]


@torch.library.register_fake("tensus_tn::gather_mix", lib=_library)
@torch.library.register_fake("tensus_tn::mix_gather", lib=_library)
def _(*inputs: Any) -> None:
    """They write into what they are given."""


@torch.library.register_fake("tensus_tn::mark_columns", lib=_library)
def _(structure: list[Tensor], rows: Tensor, used: Tensor, columns: int) -> Tensor:
    return rows.new_empty(columns)


@torch.library.register_fake("tensus_tn::select_rows", lib=_library)
def _(structure: list[Tensor], rows: Tensor, used: Tensor, column: Tensor) -> list[Tensor]:
    new_size: Callable[[], Any] = torch.library.get_ctx().new_dynamic_size
    segments, edges = new_size(), new_size()
    relations = column.new_empty(segments, dtype=torch.int32)
    sizes = (segments + 1, edges, segments, edges)
    return [column.new_empty(len(rows) + 1), relations, *map(column.new_empty, sizes)]


torch.library.register_fake("tensus_tn::empty_state", passes.empty_state, lib=_library)


@torch.library.register_fake("tensus_tn::propagate", lib=_library)
def _(*inputs: Any) -> list[Tensor]:
    given = Arguments(*inputs)
    nodes, _, features = given.h.shape
    sizes = [len(rows) for rows in given.needed_rows] or [nodes] * len(given.ranks)
    shapes = zip(sizes, given.ranks, strict=True)
    return [given.h.new_empty(size, rank, features) for size, rank in shapes][1:]


@torch.library.register_fake("tensus_tn::propagate_backward", lib=_library)
def _(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    _, _, _, given, wanted = _as_backward(inputs)
    nodes, rank, features = given.h.shape
    return (
        given.h.new_empty(nodes if wanted.h else 0, rank, features),
        given.w.new_empty(given.w.shape[0] if wanted.w else 0),
        given.w.new_empty(given.num_edges if wanted.values else 0),
    )


_library.impl("propagate", derivatives.propagate, "Autograd", with_keyset=True)
_library.impl("propagate_backward", derivatives.propagate_backward, "Autograd", with_keyset=True)
for _name in ("propagate", "propagate_backward"):
    _rule = derivatives.one_by_one(getattr(torch.ops.tensus_tn, _name))
    torch.library.register_vmap(f"tensus_tn::{_name}", _rule, lib=_library)
