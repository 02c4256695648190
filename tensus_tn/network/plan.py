"""Contraction plans: which pairs of operands to combine, in which order.

A network is given by the indices of its operands, for example `((0, 1), (1, 2))` for a product of
two matrices, the size of each index, and the indices of the result. An index may stand in any number
of operands (a hyperedge); those that are not in the result are summed. A `Plan` is an immutable list of
steps; `planner.py` finds it, and `execute.py` runs it over a semiring.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import log10, prod
from typing import Any

import opt_einsum
from torch import Tensor

from tensus_tn.network.execute import Program, lower
from tensus_tn.network.semiring import SUM_PRODUCT, Semiring
from tensus_tn.network.typing import Indices


@dataclass(frozen=True)
class Step:
    """One pairwise contraction, or a reduction and permutation of one operand (no `right`).

    Operands are numbered: the inputs of the plan first, then the result of each step.
    """

    left: int
    right: int | None
    left_indices: Indices
    right_indices: Indices
    output: Indices

    @property
    def union(self) -> frozenset[int]:
        """All indices of the operands: their sizes multiply to the work of this step."""
        return frozenset(self.left_indices + self.right_indices)


@dataclass(frozen=True)
class Plan:
    """A compiled contraction: frozen, hashable and picklable; call it with tensors to run it.

    Attributes:
        inputs: The indices of each operand.
        output: The indices of the result, in order.
        sizes: The size of each index.
        steps: The pairwise contractions in order.
        batch: An index that is kept to the end and stored last, if any.
        sliced: Indices that an outer loop sums one value at a time, to bound the memory.

    Example:
        >>> import torch
        >>> from tensus_tn.network.planner import find_plan
        >>> plan = find_plan(((0, 1), (1, 2), (2,)), (0,), (3, 4, 5))
        >>> plan.equation
        'ab,bc,c->a'
        >>> plan.path
        ((1, 2), (0, 3))
        >>> plan(torch.ones(3, 4), torch.ones(4, 5), torch.ones(5))
        tensor([20., 20., 20.])
    """

    inputs: tuple[Indices, ...]
    output: Indices
    sizes: tuple[int, ...]
    steps: tuple[Step, ...]
    batch: int | None = None
    sliced: Indices = ()
    _programs: dict[str, Program] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the programs: they are closures, and are made again at the next call.
        fields = (self.inputs, self.output, self.sizes, self.steps, self.batch, self.sliced)
        return type(self), fields

    def __call__(self, *operands: Tensor, semiring: Semiring = SUM_PRODUCT) -> Tensor:
        """Contract `operands`, one tensor for each of `inputs`, over a semiring."""
        if semiring.name not in self._programs:
            self.prepare(semiring)
        return self._programs[semiring.name](operands)

    def prepare(self, semiring: Semiring) -> None:
        """Lower the steps to torch operations now instead of at the first call."""
        self._programs[semiring.name] = lower(self, semiring)

    @property
    def equation(self) -> str:
        """The contraction in the notation of einsum."""
        letter = _letters(self)
        terms = ["".join(letter[i] for i in term) for term in (*self.inputs, self.output)]
        return f"{','.join(terms[:-1])}->{terms[-1]}"

    @property
    def path(self) -> tuple[tuple[int, ...], ...]:
        """The operands of each step; the result of step `k` has the number `len(inputs) + k`."""
        return tuple((s.left,) if s.right is None else (s.left, s.right) for s in self.steps)

    @property
    def flops(self) -> int:
        """Multiplications and additions, counted as opt_einsum does."""
        loops = prod(self.sizes[i] for i in self.sliced)
        return loops * sum(self._flops(step) for step in self.steps)

    @property
    def largest(self) -> int:
        """Entries of the largest tensor that a step allocates."""
        return max((self.allocated(step) for step in self.steps), default=1)

    @property
    def treewidth(self) -> int:
        """The most indices that two operands have together, less one; batch and sliced ones apart."""
        free = {*self.sliced, self.batch}
        pairs = (step for step in self.steps if step.right is not None)
        return max((len(step.union - free) for step in pairs), default=1) - 1

    def size(self, indices: Iterable[int]) -> int:
        """The number of elements of a tensor with these indices."""
        return prod(1 if i in self.sliced else self.sizes[i] for i in indices)

    def _flops(self, step: Step) -> int:
        summed = bool(step.union - set(step.output))
        return self.size(step.union) * ((step.right is not None) + summed)

    def allocated(self, step: Step) -> int:
        """Entries of the largest tensor that a step makes."""
        # A step with a batch multiplies by broadcasting before it sums (see execute.py).
        broadcast = step.right is not None and self.batch in step.union
        return self.size(step.union if broadcast else step.output)

    def __str__(self) -> str:
        letter = _letters(self)
        lines = [
            f"equation   {self.equation}",
            f"flops      {self.flops:,} (10^{log10(max(self.flops, 1)):.1f})",
            f"largest    {self.largest:,} entries",
            f"treewidth  {self.treewidth}",
        ]
        for number, step in enumerate(self.steps, len(self.inputs)):
            used = f"{step.left}" if step.right is None else f"{step.left}, {step.right}"
            terms = [step.left_indices, step.right_indices][: 1 + (step.right is not None)]
            sides = ["".join(letter[i] for i in term) for term in (*terms, step.output)]
            equation = f"{','.join(sides[:-1])}->{sides[-1]}"
            lines.append(f"  {number:>3} = ({used})".ljust(19) + equation)
        return "\n".join(lines)


def _letters(plan: Plan) -> dict[int, str]:
    used = dict.fromkeys(i for term in (*plan.inputs, plan.output) for i in term)
    return {index: opt_einsum.get_symbol(n) for n, index in enumerate(used)}
