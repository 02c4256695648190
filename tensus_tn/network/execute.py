"""Running a contraction plan as straight-line torch operations over a semiring.

A plan is lowered once to a list of small functions, one a step. Two forms of a pairwise step exist:

- a matrix product (matmul or einsum), where the semiring is sum-product and the operands are large;
- a broadcast product followed by a reduction, for all else. It costs less to call, and with a batch
  index it is the fast form at any size: the batch is stored last, so every operation runs along
  contiguous memory, while a batched matrix product of many tiny matrices would not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import product as cartesian
from string import ascii_letters
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tensus_tn.network.semiring import Semiring
from tensus_tn.network.typing import Indices

if TYPE_CHECKING:
    from tensus_tn.network.plan import Plan, Step

Operands = Sequence[Tensor]
Program = Callable[[Operands], Tensor]

_SMALL = 4096  # elements of a product, below which einsum costs more to call than it saves


def lower(plan: Plan, semiring: Semiring) -> Program:
    """Turn the steps of `plan` into torch operations; slices are an outer loop over them."""
    if not plan.inputs:
        return lambda operands: torch.tensor(semiring.one)
    run = partial(_run_steps, [_lower_step(step, plan, semiring) for step in plan.steps])
    return _slice_loop(plan, semiring, run) if plan.sliced else run


_Instruction = tuple[Callable[..., Tensor], int, "int | None"]


def _run_steps(instructions: list[_Instruction], operands: Operands) -> Tensor:
    live: list[Tensor | None] = list(operands)
    for compute, left, right in instructions:
        live.append(compute(live[left]) if right is None else compute(live[left], live[right]))
        live[left] = None  # each result is used once: let its memory go
        if right is not None:
            live[right] = None
    result = live[-1]
    assert result is not None
    return result


def _slice_loop(plan: Plan, semiring: Semiring, run: Program) -> Program:
    def sliced_run(operands: Operands) -> Tensor:
        ranges = [range(plan.sizes[i]) for i in plan.sliced]
        parts = (
            run([_take(x, i, plan.sliced, at) for x, i in zip(operands, plan.inputs, strict=True)])
            for at in cartesian(*ranges)
        )
        return reduce(semiring.add, parts)

    return sliced_run


def _take(x: Tensor, indices: Indices, sliced: Indices, values: Indices) -> Tensor:
    """Fix the sliced indices of an operand, keeping a dimension of size 1 for each."""
    for index, value in zip(sliced, values, strict=True):
        if index in indices:
            x = x.narrow(indices.index(index), value, 1)
    return x


def _lower_step(step: Step, plan: Plan, semiring: Semiring) -> _Instruction:
    if step.right is None:
        return _lower_single(step.left_indices, step.output, semiring), step.left, None
    terms = (step.left_indices, step.right_indices, step.output)
    if semiring.has_matmul and _is_matmul(*terms):
        compute = _lower_matmul(*terms)
    elif semiring.has_matmul and plan.batch not in step.union and _is_einsum(plan, step):
        compute = _lower_einsum(*terms)
    else:
        compute = _lower_broadcast(*terms, semiring)
    return compute, step.left, step.right


def _lower_single(
    indices: Indices, output: Indices, semiring: Semiring
) -> Callable[[Tensor], Tensor]:
    """Reduce the indices that are not in the output, then permute."""
    summed = tuple(d for d, i in enumerate(indices) if i not in output)
    kept = [i for i in indices if i in output]
    order = tuple(kept.index(i) for i in output)

    def single(x: Tensor) -> Tensor:
        return (semiring.reduce(x, summed) if summed else x).permute(order)

    return single


def _is_matmul(left: Indices, right: Indices, output: Indices) -> bool:
    """Whether `x @ y` of vectors or matrices, transposed or not, is all there is to do."""
    shared, summed = set(left) & set(right), (set(left) | set(right)) - set(output)
    return len(left) <= 2 and len(right) <= 2 and len(shared) == 1 and shared == summed


def _lower_matmul(
    left: Indices, right: Indices, output: Indices
) -> Callable[[Tensor, Tensor], Tensor]:
    """`x @ y` with the transposes that bring the summed index to the middle."""
    if len(output) == 2 and output[0] in right:  # swap, so that the left index comes first
        swapped = _lower_matmul(right, left, output)
        return lambda x, y: swapped(y, x)
    turn_left, turn_right = left[-1] in output, right[0] in output
    if turn_left and turn_right:
        return lambda x, y: x.t() @ y.t()
    if turn_left:
        return lambda x, y: x.t() @ y
    if turn_right:
        return lambda x, y: x @ y.t()
    return torch.matmul


def _is_einsum(plan: Plan, step: Step) -> bool:
    return plan.size(step.union) > _SMALL and len(step.union) <= len(ascii_letters)


def _lower_einsum(
    left: Indices, right: Indices, output: Indices
) -> Callable[[Tensor, Tensor], Tensor]:
    letter = dict(zip(dict.fromkeys(left + right), ascii_letters, strict=False))
    terms = ("".join(letter[i] for i in indices) for indices in (left, right, output))
    return partial(torch.einsum, "{},{}->{}".format(*terms))


def _lower_broadcast(
    left: Indices, right: Indices, output: Indices, semiring: Semiring
) -> Callable[[Tensor, Tensor], Tensor]:
    """Bring both operands to the order (summed, output), multiply, and reduce the front."""
    summed = tuple(i for i in dict.fromkeys(left + right) if i not in output)
    order = summed + output
    align_left, align_right = _aligner(left, order), _aligner(right, order)
    front = tuple(range(len(summed)))

    def broadcast(x: Tensor, y: Tensor) -> Tensor:
        z = semiring.multiply(align_left(x), align_right(y))
        return semiring.reduce(z, front) if front else z

    return broadcast


def _aligner(indices: Indices, order: Indices) -> Callable[[Tensor], Tensor]:
    """Permute to `order` and insert dimensions of size 1 for the indices that are missing."""
    permutation = tuple(indices.index(i) for i in order if i in indices)
    missing = [d for d, i in enumerate(order) if i not in indices]
    first = next((d for d, i in enumerate(order) if i in indices), len(order))
    inserted = [d - first for d in missing if d > first]  # leading ones broadcast by themselves

    def align(x: Tensor) -> Tensor:
        if permutation != tuple(range(len(permutation))):
            x = x.permute(permutation)
        for d in inserted:
            x = x.unsqueeze(d)
        return x

    return align
