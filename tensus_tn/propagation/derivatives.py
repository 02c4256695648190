"""Every derivative of the propagation is the propagation again.

With a gradient `g_k` for every state, `L(g, h, w, a) = sum_k <g_k, H_k(h, w, a)>` is one number. Its
gradient in `g` is what `propagate` computes, its gradient in `h`, `w` and the edge values `a` is
what `propagate_backward` computes. So the derivatives of both operators, forward and backward, are
products of one symmetric matrix, the Hessian of `L`, with a direction `(g', h', w', a')`. The
derivative of `L` along a direction, `<g', H> + <g, H'>`, is itself an `L`, that of the dual problem
(see `dual`), and its gradient is the product: one more call of each operator, which can be
differentiated in its turn.

`torch.library.register_autograd` knows neither forward mode nor `torch.func`, so the operators' kernels
for autograd are written out here, on the parts of torch that it is made of itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction
from torch.utils import _pytree as pytree

from tensus_tn.propagation.arguments import Arguments, Wanted
from tensus_tn.propagation.dual import Direction, Dual, stack

_VARIABLES = 3  # the first arguments, `h`, `w` and `edge_val`, have derivatives


# ---------------------------------------------------------------------------- formulas


def _states_along(given: Arguments, along: Direction) -> list[Tensor]:
    """The tangents of the states 1 .. K along a direction."""
    dual = Dual(given, along)
    return dual.tangents(torch.ops.tensus_tn.propagate(*dual.problem))


def _gradients_along(
    grads: Sequence[Tensor],
    grads_along: Sequence[Tensor | None],
    grad_nodes: Sequence[int],
    given: Arguments,
    along: Direction,
    wanted: Wanted,
) -> tuple[list[Tensor], Direction]:
    """The tangents of the states, and those of the gradients for `grads`, along a direction."""
    dual = Dual(given, along)
    states = torch.ops.tensus_tn.propagate(*dual.problem)
    stacked = [
        stack(torch.zeros_like(grad) if tangent is None else tangent, grad)
        for grad, tangent in zip(grads, grads_along, strict=True)
    ]
    dh, dw, dvalues = torch.ops.tensus_tn.propagate_backward(
        stacked, grad_nodes, states, *dual.problem, *wanted
    )
    return dual.tangents(states), dual.gradients(dh, dw, dvalues, wanted)


def _with_transposed_values(given: Arguments) -> Arguments:
    """Values that learn may have changed since the graph was made, so the transpose's are theirs."""
    assert given.edge_val is not None
    edge_perm = given.backward[4]
    values = given.edge_val.index_select(0, edge_perm)
    return given._replace(back_edge_val=values, back_seg_val=None)


# ---------------------------------------------------------------------------- torch's rules


def propagate(keyset: Any, *inputs: Any) -> Any:
    """The kernel of `tensus_tn::propagate` for autograd."""
    if _nothing_to_record(*inputs[:_VARIABLES]):
        return _below_autograd(torch.ops.tensus_tn.propagate.default, keyset, *inputs)
    with enable_single_level_autograd_function():
        return list(
            _Propagate.apply(  # type: ignore[attr-defined]
                keyset, inputs[_VARIABLES:], *inputs[:_VARIABLES]
            )
        )


def propagate_backward(
    keyset: Any, grads: list[Tensor], grad_nodes: list[int], states: list[Tensor], *rest: Any
) -> Any:
    """The kernel of `tensus_tn::propagate_backward` for autograd."""
    given, wanted = rest[: -len(Wanted._fields)], Wanted(*rest[-len(Wanted._fields) :])
    if _nothing_to_record(*given[:_VARIABLES], *grads):
        operator = torch.ops.tensus_tn.propagate_backward.default
        return _below_autograd(operator, keyset, grads, grad_nodes, states, *rest)
    constants = grad_nodes, states, given[_VARIABLES:], wanted
    with enable_single_level_autograd_function():
        return _PropagateBackward.apply(  # type: ignore[attr-defined]
            keyset, constants, *given[:_VARIABLES], *grads
        )


def _nothing_to_record(*variables: Tensor | None) -> bool:
    """Whether a call is plain: no gradient, no forward mode, no transform of `torch.func`."""
    backward = torch.is_grad_enabled() and torch._C._any_requires_grad(*variables)
    forward = forward_ad._current_level >= 0
    return not (backward or forward or torch._C._are_functorch_transforms_active())


class _Propagate(_SingleLevelFunction):
    """`propagate`, differentiable in `h`, `w` and `edge_val`."""

    @staticmethod
    def forward(keyset: Any, constants: Any, *variables: Any) -> Any:
        operator = torch.ops.tensus_tn.propagate.default
        return tuple(_below_autograd(operator, keyset, *variables, *constants))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _, ctx.constants, *variables = inputs
        ctx.save_for_backward(*variables, *output)
        ctx.save_for_forward(*variables)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        variables, states = ctx.saved_tensors[:_VARIABLES], list(ctx.saved_tensors[_VARIABLES:])
        given = Arguments(*variables, *ctx.constants)
        wanted = Wanted(*ctx.needs_input_grad[2:])
        if wanted.values:
            given = _with_transposed_values(given)
        present = [(k, grad) for k, grad in enumerate(grads, start=1) if grad is not None]
        gradients = torch.ops.tensus_tn.propagate_backward(
            [grad for _, grad in present], [k for k, _ in present], states, *given, *wanted
        )
        return None, None, *(g if n else None for g, n in zip(gradients, wanted, strict=True))

    @staticmethod
    def jvp(ctx: Any, _keyset: None, _constants: None, *along: Tensor | None) -> Any:
        with _EveryTransform():
            given = Arguments(*map(_primal, ctx.saved_tensors), *ctx.constants)
            return tuple(_states_along(given, Direction(*along)))


class _PropagateBackward(_SingleLevelFunction):
    """`propagate_backward`, differentiable in `h`, `w`, `edge_val` and the gradients.

    Not in the states and in the values of the transpose: these follow from the others.
    """

    @staticmethod
    def forward(keyset: Any, constants: Any, *variables: Any) -> Any:
        operator = torch.ops.tensus_tn.propagate_backward.default
        grad_nodes, states, rest, wanted = constants
        given, grads = (*variables[:_VARIABLES], *rest), list(variables[_VARIABLES:])
        return _below_autograd(operator, keyset, grads, grad_nodes, states, *given, *wanted)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _, (ctx.grad_nodes, _, ctx.constants, ctx.wanted), *variables = inputs
        ctx.save_for_backward(*variables)
        ctx.save_for_forward(*variables)
        ctx.mark_non_differentiable(*(x for x, n in zip(output, ctx.wanted, strict=True) if not n))
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *along: Tensor | None) -> Any:
        *variables, grads = _apart(ctx.saved_tensors)
        given = Arguments(*variables, *ctx.constants)
        wanted = Wanted(*ctx.needs_input_grad[2 : 2 + _VARIABLES])
        none = [None] * len(grads)
        states, gradients = _gradients_along(
            grads, none, ctx.grad_nodes, given, Direction(*along), wanted
        )
        return None, None, *gradients, *(states[k - 1] for k in ctx.grad_nodes)

    @staticmethod
    def jvp(ctx: Any, _keyset: None, _constants: None, *along: Tensor | None) -> Any:
        with _EveryTransform():
            *variables, grads = _apart([_primal(x) for x in ctx.saved_tensors])
            *variables_along, grads_along = _apart(along)
            given, direction = Arguments(*variables, *ctx.constants), Direction(*variables_along)
            _, gradients = _gradients_along(
                grads, grads_along, ctx.grad_nodes, given, direction, ctx.wanted
            )
            return tuple(gradients)


def _apart(variables: Sequence[Any]) -> tuple[Any, ...]:
    """`h`, `w`, `edge_val`, and the list of the gradients."""
    return *variables[:_VARIABLES], list(variables[_VARIABLES:])


def _below_autograd(operator: Any, keyset: Any, *inputs: Any) -> Any:
    """Call what comes after autograd: the kernel, or the transform around this one."""
    with _EveryTransform(), torch._C._AutoDispatchBelowAutograd():
        return operator.redispatch(keyset & torch._C._after_autograd_keyset, *inputs)


class _EveryTransform:
    """Inside a rule torch differentiates nothing, but transforms around this one must go on."""

    def __enter__(self) -> None:
        self.modes = torch.is_grad_enabled(), torch._C._is_fwd_grad_enabled()
        torch._C._set_grad_enabled(True)
        torch._C._set_fwd_grad_enabled(True)

    def __exit__(self, *_: object) -> None:
        torch._C._set_grad_enabled(self.modes[0])
        torch._C._set_fwd_grad_enabled(self.modes[1])


def _primal(x: Any) -> Any:
    """A tensor without its tangent; the level is said, since a compiled graph does not know it."""
    return None if x is None else forward_ad.unpack_dual(x, level=0).primal


def one_by_one(operator: Any) -> Callable[..., Any]:
    """The rule of `vmap` for an operator: one call for each element of the batch."""

    def rule(info: Any, in_dims: Any, *inputs: Any) -> Any:
        leaves, spec = pytree.tree_flatten(inputs)
        dims = pytree.tree_leaves(in_dims)

        def element(b: int) -> Any:
            parts = [
                x if d is None else x.select(d, b).contiguous()
                for x, d in zip(leaves, dims, strict=True)
            ]
            return operator(*pytree.tree_unflatten(parts, spec))

        results = [element(b) for b in range(info.batch_size)]
        stacked = [torch.stack(parts) for parts in zip(*results, strict=True)]
        return stacked, [0] * len(stacked)

    return rule
