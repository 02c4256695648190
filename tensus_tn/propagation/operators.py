"""The operators `tensus_tn::propagate` and `tensus_tn::propagate_backward`, completed for torch.

The extension defines their schemas and kernels, for the CPU and, where it was built with nvcc, for
CUDA. Here they get a plain PyTorch implementation for whatever has no kernel, shapes for tracing,
and derivatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tensus_tn._torch_modes import require_plain
from tensus_tn.propagation import extension, reference

# As in csrc/ops.cpp, where they are defined if the extension is there (a test compares).
SCHEMAS = {
    "propagate": (
        "(Tensor h, Tensor w, Tensor? edge_val, Tensor? seg_val, Tensor? back_edge_val, "
        "Tensor? back_seg_val, Tensor? loop, Tensor? seg_loop, Tensor[] forward, "
        "Tensor[] backward, int[] ranks, int[] tails, int[] heads, int[]? chosen) -> Tensor[]"
    ),
    "propagate_backward": (
        "(Tensor[] grads, int[] grad_nodes, Tensor h, Tensor[] states, Tensor w, Tensor? edge_val, "
        "Tensor? seg_val, Tensor? back_edge_val, Tensor? back_seg_val, Tensor? loop, "
        "Tensor? seg_loop, Tensor[] forward, Tensor[] backward, int[] ranks, int[] tails, "
        "int[] heads, int[]? chosen, bool need_h, bool need_w, bool need_values) "
        "-> (Tensor, Tensor, Tensor)"
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
_library.impl("propagate", reference.propagate, "CompositeExplicitAutograd")
_library.impl("propagate_backward", reference.propagate_backward, "CompositeExplicitAutograd")


@torch.library.register_fake("tensus_tn::propagate", lib=_library)
def _(h: Tensor, *rest: Any) -> list[Tensor]:
    ranks, _, _, _ = rest[-4:]
    return [h.new_empty(h.shape[0], rank, h.shape[2]) for rank in ranks[1:]]


@torch.library.register_fake("tensus_tn::propagate_backward", lib=_library)
def _(
    grads: list[Tensor],
    grad_nodes: list[int],
    h: Tensor,
    states: list[Tensor],
    w: Tensor,
    *rest: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    *_, forward, _, _, _, _, _, need_h, need_w, need_values = rest
    _, _, _, col = forward
    return (
        h.new_empty(h.shape[0] if need_h else 0, *h.shape[1:]),
        w.new_empty(w.shape[0] if need_w else 0),
        w.new_empty(col.shape[0] if need_values else 0),
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    h, w, edge_val, *values, forward, backward, ranks, tails, heads, chosen = inputs
    ctx.save_for_backward(h, w, edge_val, *values, *forward, *backward, *output)
    ctx.sizes = len(forward), len(backward)
    ctx.dag = ranks, tails, heads, chosen
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grads: Sequence[Tensor | None]) -> tuple[Any, ...]:
    require_plain("the gradient of propagate", *grads)
    h, w, edge_val, seg_val, back_edge_val, back_seg_val, loop, seg_loop, *rest = ctx.saved_tensors
    num_forward, num_backward = ctx.sizes
    forward, rest = rest[:num_forward], rest[num_forward:]
    backward, states = rest[:num_backward], rest[num_backward:]
    need_h, need_w, need_values = ctx.needs_input_grad[:3]
    if need_values:
        back_edge_val, back_seg_val = edge_val.index_select(0, backward[4]), None
    given = [(k, grad) for k, grad in enumerate(grads, start=1) if grad is not None]
    dh, dw, dvalues = torch.ops.tensus_tn.propagate_backward(
        [grad for _, grad in given],
        [k for k, _ in given],
        h,
        states,
        w,
        edge_val,
        seg_val,
        back_edge_val,
        back_seg_val,
        loop,
        seg_loop,
        forward,
        backward,
        *ctx.dag,
        need_h,
        need_w,
        need_values,
    )
    needed = (dh if need_h else None, dw if need_w else None, dvalues if need_values else None)
    no_lists = ([None] * num_forward, [None] * num_backward)
    return (*needed, *[None] * 5, *no_lists, *[None] * 4)


def _no_second_derivative(ctx: Any, *grads: Any) -> None:
    raise NotImplementedError(
        "propagate has no second derivative: differentiate once, or without create_graph=True"
    )


torch.library.register_autograd(
    "tensus_tn::propagate", _backward, setup_context=_setup_context, lib=_library
)
torch.library.register_autograd(
    "tensus_tn::propagate_backward", _no_second_derivative, lib=_library
)
