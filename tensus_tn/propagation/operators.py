"""The operators `tensus_tn::propagate` and `tensus_tn::propagate_backward`, completed for torch.

The extension defines their schemas and kernels, for the CPU and, where it was built with nvcc, for
CUDA. Here they get a plain PyTorch implementation for whatever has no kernel, shapes for tracing,
and derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tensus_tn._torch_modes import require_plain
from tensus_tn.propagation import extension, reference
from tensus_tn.propagation.arguments import Arguments, Wanted

# As in csrc/library.cpp, where they are defined if the extension is there (a test compares).
SCHEMAS = {
    "propagate": (
        "(Tensor h, Tensor w, Tensor? edge_val, Tensor? seg_val, Tensor? back_edge_val, "
        "Tensor? back_seg_val, Tensor? loop, Tensor? seg_loop, Tensor[] forward, "
        "Tensor[] backward, int[] ranks, int[] tails, int[] heads, int[]? chosen) -> Tensor[]"
    ),
    "propagate_backward": (
        "(Tensor[] grads, int[] grad_nodes, Tensor[] states, Tensor h, Tensor w, Tensor? edge_val, "
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


_LISTS = Arguments._fields.index("forward")  # the arguments before it are single tensors

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
}
for _name, _function in PLAIN.items():
    _library.impl(_name, _function, "CompositeExplicitAutograd")


@torch.library.register_fake("tensus_tn::propagate", lib=_library)
def _(*inputs: Any) -> list[Tensor]:
    given = Arguments(*inputs)
    nodes, _, features = given.h.shape
    return [given.h.new_empty(nodes, rank, features) for rank in given.ranks[1:]]


@torch.library.register_fake("tensus_tn::propagate_backward", lib=_library)
def _(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    _, _, _, given, wanted = _as_backward(inputs)
    nodes, rank, features = given.h.shape
    return (
        given.h.new_empty(nodes if wanted.h else 0, rank, features),
        given.w.new_empty(given.w.shape[0] if wanted.w else 0),
        given.w.new_empty(given.num_edges if wanted.values else 0),
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    given = Arguments(*inputs)
    ctx.save_for_backward(*given[:_LISTS], *given.forward, *given.backward, *output)
    ctx.lengths = len(given.forward), len(given.backward)
    ctx.dag = given.ranks, given.tails, given.heads, given.chosen
    ctx.set_materialize_grads(False)


def _saved(ctx: Any) -> tuple[Arguments, list[Tensor]]:
    """The arguments of `propagate` and the states it returned, as `_setup_context` saved them."""
    single, lists = ctx.saved_tensors[:_LISTS], list(ctx.saved_tensors[_LISTS:])
    start, end = ctx.lengths[0], sum(ctx.lengths)
    given = Arguments._make([*single, lists[:start], lists[start:end], *ctx.dag])
    return given, lists[end:]


def _backward(ctx: Any, grads: Sequence[Tensor | None]) -> tuple[Any, ...]:
    require_plain("the gradient of propagate", *grads)
    given, states = _saved(ctx)
    wanted = Wanted(*ctx.needs_input_grad[: len(Wanted._fields)])
    if wanted.values:
        given = _with_transposed_values(given)
    present = [(k, grad) for k, grad in enumerate(grads, start=1) if grad is not None]
    dh, dw, dvalues = torch.ops.tensus_tn.propagate_backward(
        [grad for _, grad in present], [k for k, _ in present], states, *given, *wanted
    )
    gradients = {
        "h": dh if wanted.h else None,
        "w": dw if wanted.w else None,
        "edge_val": dvalues if wanted.values else None,
        "forward": [None] * len(given.forward),
        "backward": [None] * len(given.backward),
    }
    return tuple(gradients.get(name) for name in Arguments._fields)


def _with_transposed_values(given: Arguments) -> Arguments:
    """Values that learn may have changed since the graph was made, so the transpose's are theirs."""
    assert given.edge_val is not None
    *_, edge_perm = given.backward
    values = given.edge_val.index_select(0, edge_perm)
    return given._replace(back_edge_val=values, back_seg_val=None)


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
