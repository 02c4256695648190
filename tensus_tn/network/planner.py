"""The search for a cheap plan: simplify, let two searches compete, slice what is too large."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import opt_einsum

from tensus_tn.network.elimination import min_fill_pairs, users_of
from tensus_tn.network.plan import Plan, Step
from tensus_tn.network.typing import Indices, Optimize, Pairs

_SLICES = 2**14  # the most that a contraction is cut into
# A contraction of so few flops takes as long as it takes to call its steps, whatever their order: no
# search can win its time back.
_FEW = 2**14


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

    The network is simplified first. Then min-fill elimination and opt_einsum's path compete, and the
    one with fewer flops wins; where elimination takes few, opt_einsum is not asked.

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
    base = _Contraction(tuple(inputs), output, tuple(sizes), batch)
    base.simplify()
    plan = base.finish(min_fill_pairs(base.live, output, sizes, base.following))
    if optimize != "auto" or plan.flops > _FEW:
        other = base.finish(_opt_einsum_pairs(base, optimize))
        plan = min(other, plan, key=lambda plan: (plan.flops, plan.largest))
    return plan if limit is None else _sliced(plan, limit)


def check_optimize(optimize: Optimize) -> Optimize:
    """Return `optimize`, a name that opt_einsum knows or a hashable optimizer, or raise an error."""
    if isinstance(optimize, str):
        try:
            opt_einsum.paths.get_path_fn(optimize)
        except KeyError as error:
            raise ValueError(f"optimize: {error.args[0]}") from None
    elif not callable(optimize):
        raise TypeError(f"optimize must be a name or an optimizer of opt_einsum, got {optimize!r}")
    else:
        _check_hashable(optimize)
    return optimize


def _check_hashable(optimize: Optimize) -> None:
    try:
        hash(optimize)
    except TypeError:
        raise TypeError(
            f"optimize must be hashable, as plans are kept by it, got {type(optimize).__name__}"
        ) from None


class _Contraction:
    """A contraction on its way: the steps so far, and in `live` the operands that are left."""

    def __init__(
        self,
        inputs: tuple[Indices, ...],
        output: Indices,
        sizes: tuple[int, ...],
        batch: int | None,
    ) -> None:
        self.inputs, self.output, self.sizes, self.batch = inputs, output, sizes, batch
        self.live: dict[int, Indices] = dict(enumerate(inputs))
        self.users = users_of(self.live)
        self.steps: list[Step] = []

    @property
    def following(self) -> int:
        """The number of the next result."""
        return len(self.inputs) + len(self.steps)

    def simplify(self) -> None:
        """Sum what stands in one operand only, and absorb operands into ones that cover them.

        Neither can make a tensor larger, and what is left is a much smaller problem for the search.
        An index of size 1 goes too: it costs nothing, so the search would let many of them pile up.
        """
        shared = {i for i, users in self.users.items() if len(users) > 1 and self.sizes[i] > 1}
        for number, term in list(self.live.items()):
            kept = tuple(i for i in term if i in self.output or i in shared)
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
        rest = _Contraction(self.inputs, self.output, self.sizes, self.batch)
        rest.live, rest.users, rest.steps = dict(self.live), users_of(self.live), list(self.steps)
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
        number = self.following
        self.live[number] = step.output
        for index in step.output:
            self.users[index].add(number)
        self.steps.append(step)
        return number


def _opt_einsum_pairs(network: _Contraction, optimize: Optimize) -> Pairs:
    """The pairs that opt_einsum, or an optimizer with its protocol, would contract."""
    if len(network.live) == 1:
        return []
    symbol = opt_einsum.get_symbol
    *terms, output = (frozenset(map(symbol, t)) for t in (*network.live.values(), network.output))
    sizes = {symbol(i): network.sizes[i] for term in network.live.values() for i in term}
    find = optimize if callable(optimize) else opt_einsum.paths.get_path_fn(optimize)
    path = find(terms, output, sizes)  # the protocol that cotengra's optimizers have too
    return _numbered(path, list(network.live), network.following)


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


def _sliced(plan: Plan, limit: int) -> Plan:
    """Slice summed indices of the largest step until every tensor fits."""
    while plan.largest > limit:
        step = max(plan.steps, key=plan.allocated)
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
