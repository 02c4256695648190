"""Contraction plans: which pairs of operands to combine, in which order, found once and kept.

A network is given by the indices of its operands, for example `((0, 1), (1, 2))` for a product of
two matrices, the size of each index, and the indices of the result. An index may stand in any number
of operands (a hyperedge); those that are not in the result are summed. `find_plan` returns a
`Plan`, an immutable list of steps that `e` runs over a semiring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import log10, prod
from typing import Any

import opt_einsum
from torch import Tensor

from tensus_tn.network.execute import SUM_PRODUCT, Program, Semiring, lower

Indices = tuple[int, ...]
Optimize = Any  # what opt_einsum takes: a name, a path, or an optimizer object such as cotengra's
Pairs = list[tuple[int, int]]  # operands by number; a result takes the next free number

_SLICES = 2**14  # the most that a contraction is cut into


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
        return max((self._allocated(step) for step in self.steps), default=1)

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

    def _allocated(self, step: Step) -> int:
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


def find_plan(
    inputs: Sequence[Indices],
    output: Indices,
    sizes: Sequence[int],
    *,
    batch: int | None = None,
    optimize: Optimize = "auto",
    limit: int | None = None,
) -> Plan:
    """Find a cheap order of contraction.

    The network is simplified first (`_Builder`). Then opt_einsum's path and min-fill
    elimination compete, and the one with fewer flops wins.

    Args:
        inputs: The indices of each operand.
        output: The indices to keep, in order.
        sizes: The size of each index.
        batch: An index that the operands store last, and the output too.
        optimize: Passed to opt_einsum: `"auto"`, `"dp"`, a cotengra optimizer.
        limit: The most entries that a tensor may have; above it, summed indices are sliced.

    Raises:
        ValueError: If no slicing fits the limit; the message names the size that is needed.

    Example:
        >>> find_plan(((0, 1), (1, 2), (2, 3)), (0, 3), (2, 2, 2, 2)).flops
        32
    """
    if not inputs:
        return Plan((), (), tuple(sizes), ())
    base = _Builder(tuple(inputs), output, tuple(sizes), batch)
    base.simplify()
    candidates = [
        base.finish(find(base)) for find in (_opt_einsum_pairs(optimize), _min_fill_pairs)
    ]
    plan = min(candidates, key=lambda plan: (plan.flops, plan.largest))
    return plan if limit is None else _sliced(plan, limit)


class _Builder:
    """Grows the list of steps of a plan; `live` holds the operands that are left."""

    def __init__(
        self,
        inputs: tuple[Indices, ...],
        output: Indices,
        sizes: tuple[int, ...],
        batch: int | None,
    ) -> None:
        self.inputs, self.output, self.sizes, self.batch = inputs, output, sizes, batch
        self.live: dict[int, Indices] = dict(enumerate(inputs))
        self.users = _users(self.live)
        self.steps: list[Step] = []

    def simplify(self) -> None:
        """Sum what stands in one operand only, and absorb operands into ones that cover them.

        Neither can make a tensor larger, and what is left is a much smaller problem for the search.
        """
        for number, term in list(self.live.items()):
            kept = tuple(i for i in term if i in self.output or len(self.users[i]) > 1)
            if kept != term:
                self._add(Step(number, None, term, (), kept))
        waiting = list(self.live)
        while waiting:
            number = waiting.pop()
            absorbed = self._absorb(number) if number in self.live else None
            if absorbed is not None:
                waiting.extend([*self._neighbours(absorbed), absorbed])

    def _absorb(self, number: int) -> int | None:
        mine = set(self.live[number])
        for other in self._neighbours(number):
            theirs = set(self.live[other])
            if mine <= theirs or theirs <= mine:
                return self.contract(min(number, other), max(number, other))
        return None

    def _neighbours(self, number: int) -> list[int]:
        """The operands that share an index with this one; for a scalar, every other."""
        term = self.live[number]
        if not term:
            return [n for n in self.live if n != number]
        return sorted({n for i in term for n in self.users[i]} - {number})

    def contract(self, a: int, b: int) -> int:
        """Multiply two operands and sum what no other needs; returns the number of the result."""
        left, right = self.live[a], self.live[b]
        needed = {i for i in left + right if i in self.output or self.users[i] - {a, b}}
        kept = [i for i in dict.fromkeys(left + right) if i in needed]
        if set(kept) == set(self.output) and len(self.live) == 2:
            kept = list(self.output)
        kept.sort(key=lambda i: i == self.batch)  # a stable sort: the batch goes last
        return self._add(Step(a, b, left, right, tuple(kept)))

    def finish(self, pairs: Pairs) -> Plan:
        """The plan that contracts these pairs after what was done so far."""
        rest = _Builder(self.inputs, self.output, self.sizes, self.batch)
        rest.live, rest.users, rest.steps = dict(self.live), _users(self.live), list(self.steps)
        for a, b in pairs:
            rest.contract(a, b)
        ((number, term),) = rest.live.items()
        if term != self.output:
            rest._add(Step(number, None, term, (), self.output))
        return Plan(self.inputs, self.output, self.sizes, tuple(rest.steps), self.batch)

    def _add(self, step: Step) -> int:
        for used in (step.left,) if step.right is None else (step.left, step.right):
            for index in self.live.pop(used):
                self.users[index].remove(used)
        number = len(self.inputs) + len(self.steps)
        self.live[number] = step.output
        for index in step.output:
            self.users[index].add(number)
        self.steps.append(step)
        return number


def _users(terms: dict[int, Indices]) -> dict[int, set[int]]:
    """For each index, the operands that it stands in."""
    users: dict[int, set[int]] = {}
    for number, term in terms.items():
        for index in term:
            users.setdefault(index, set()).add(number)
    return users


def _opt_einsum_pairs(optimize: Optimize) -> Callable[[_Builder], Pairs]:
    def find(network: _Builder) -> Pairs:
        if len(network.live) == 1:
            return []
        symbol = opt_einsum.get_symbol
        terms = ["".join(map(symbol, t)) for t in (*network.live.values(), network.output)]
        if callable(optimize):  # the protocol that opt_einsum's and cotengra's optimizers share
            sizes = {symbol(i): network.sizes[i] for t in network.live.values() for i in t}
            path = optimize([frozenset(t) for t in terms[:-1]], frozenset(terms[-1]), sizes)
        else:
            shapes = [tuple(network.sizes[i] for i in term) for term in network.live.values()]
            equation = f"{','.join(terms[:-1])}->{terms[-1]}"
            path, _ = opt_einsum.contract_path(equation, *shapes, shapes=True, optimize=optimize)
        return _numbered(path, list(network.live), len(network.inputs) + len(network.steps))

    return find


def _numbered(path: Sequence[Sequence[int]], numbers: list[int], following: int) -> Pairs:
    """From positions in a shrinking list (opt_einsum) to numbers that never change."""
    pairs = []
    for positions in path:
        taken = [numbers.pop(p) for p in sorted(positions, reverse=True)]
        while len(taken) > 1:
            pairs.append((taken.pop(), taken.pop()))
            taken.append(following)
            following += 1
        numbers.extend(taken)
    return pairs


def _min_fill_pairs(network: _Builder) -> Pairs:
    """Eliminate the summed indices in min-fill order, then multiply what is left."""
    live, users = dict(network.live), _users(network.live)
    following = len(network.inputs) + len(network.steps)
    pairs: Pairs = []

    def multiply(numbers: Iterable[int], summed: int | None) -> None:
        nonlocal following
        queue = sorted(numbers, key=lambda n: prod(network.sizes[i] for i in live[n]))
        while len(queue) > 1:
            pairs.append((queue.pop(0), queue.pop(0)))
            merged = dict.fromkeys(i for n in pairs[-1] for i in live.pop(n))
            live[following] = tuple(i for i in merged if i != summed or queue)
            for index in merged:
                users[index] = users[index] - set(pairs[-1]) | {following}
            queue.insert(0, following)
            following += 1

    for index in min_fill_order(live.values(), set(network.output)):
        multiply(users[index], index)
    multiply(list(live), None)
    return pairs


def min_fill_order(terms: Iterable[Indices], kept: set[int]) -> Iterator[int]:
    """Yield the indices to sum, each time the one whose neighbours lack the fewest links."""
    near: dict[int, set[int]] = {}
    for term in terms:
        for index in term:
            near.setdefault(index, set()).update(i for i in term if i != index)

    def fill(index: int) -> tuple[int, int, int]:
        around = near[index]
        links = sum(len(near[i] & around) for i in around) // 2
        return len(around) * (len(around) - 1) // 2 - links, len(around), index

    costs = {index: fill(index) for index in near if index not in kept}
    while costs:
        index = min(costs, key=costs.__getitem__)
        del costs[index]
        yield index
        around = near.pop(index)
        for i in around:
            near[i] |= around - {i}
            near[i].discard(index)
        for i in around.union(*(near[i] for i in around)) & costs.keys():
            costs[i] = fill(i)


def _sliced(plan: Plan, limit: int) -> Plan:
    """Slice summed indices of the largest step until every tensor fits."""
    while plan.largest > limit:
        step = max(plan.steps, key=plan._allocated)
        spared = {*plan.output, *plan.sliced, plan.batch}
        choices = [i for i in step.union - spared if plan.sizes[i] > 1]
        loops = prod(plan.sizes[i] for i in plan.sliced)
        if not choices or plan.size(plan.output) > limit or loops > _SLICES:
            raise ValueError(
                f"the contraction {plan.equation} needs a tensor of {plan.largest * loops:,} entries, "
                f"above the limit of {limit:,}, and slicing does not bring it below; it takes "
                f"{plan.flops:.1e} flops; raise memory_limit"
            )
        index = min(choices, key=lambda i: (-plan.sizes[i], i))
        fields = (plan.inputs, plan.output, plan.sizes, plan.steps, plan.batch)
        plan = Plan(*fields, (*plan.sliced, index))
    return plan
