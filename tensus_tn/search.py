"""The largest entries of a network, exactly, by best-first search with a bound.

A partial entry fixes the choices of the first edges. No entry that begins like it can be larger than
the contraction in which every other core is replaced by its maximum over choices, so a partial entry
whose bound is below the ``k``-th best entry found is dropped with all that it stands for. The sum over
ranks is taken exactly, before the maximum over choices (a marginal MAP): a maximum over the ranks too
would find other entries.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, inf, log, prod
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from tensus_tn.cache import fetch
from tensus_tn.checks import check_size
from tensus_tn.execute import LOG_SUM_EXP, SUM_PRODUCT
from tensus_tn.tables import TablePlan

if TYPE_CHECKING:
    from tensus_tn.queries import Queries

_BEAM = 64  # prefixes kept at each depth for the first guess
_BATCH = 1024  # prefixes expanded at once
_LOG_DOMAIN = 500.0  # above this log of the number of entries, they may underflow float64

Prefix = tuple[int, ...]


@dataclass(frozen=True)
class TopK:
    """The largest entries of a tensor.

    Attributes:
        index: ``(k, M)``, in descending order of the entries; ties in ascending order of the index.
        value: ``(k,)``, the entries; differentiable.
        exact: Whether it is proven that no other entry is larger.
        gap: How much larger than the last of these an entry could be that was not found; 0 if exact.
    """

    index: Tensor
    value: Tensor
    exact: bool
    gap: float


def best_first(tensor: Queries, k: int, budget: int) -> TopK:
    """Search for the ``k`` largest entries of ``tensor``, bounding at most ``budget`` prefixes."""
    check_size("k", k)
    check_size("budget", budget)
    bounds = _Bounds(tensor)
    found = _Found(min(k, prod(tensor.shape)))  # numel() would overflow
    _dive(bounds, found)
    bounds.count = 0  # the budget is for the proof
    heap: list[tuple[float, Prefix]] = [(-inf, ())]
    while heap and found.wants(-heap[0][0], heap[0][1]) and bounds.count < budget:
        batch = [heapq.heappop(heap) for _ in range(min(_BATCH, len(heap)))]
        for prefixes in _by_length(
            prefix for bound, prefix in batch if found.wants(-bound, prefix)
        ):
            values, children = bounds.expand(torch.tensor(prefixes, dtype=torch.long))
            for value, child in found.promising(values, children):
                if len(child) == bounds.depth:
                    found.add(value, child)
                else:
                    heapq.heappush(heap, (-value, child))
    exact = not (heap and found.wants(-heap[0][0], heap[0][1]))
    index = torch.tensor(found.entries(), device=bounds.device)
    gap = 0.0 if exact else bounds.scaled(-heap[0][0]) - bounds.scaled(found.threshold)
    return TopK(index, tensor[index], exact, max(gap, 0.0))


def _dive(bounds: _Bounds, found: _Found) -> None:
    """A beam search: good entries at the start let the bound drop most prefixes later."""
    prefixes = torch.zeros(1, 0, dtype=torch.long)
    while prefixes.shape[1] < bounds.depth:
        values, children = bounds.expand(prefixes)
        best = values.topk(min(max(_BEAM, found.k), len(values))).indices
        values, prefixes = values[best], children[best]
    for value, child in found.promising(values, prefixes):
        found.add(value, child)


def _by_length(prefixes: Iterable[Prefix]) -> list[list[Prefix]]:
    groups: dict[int, list[Prefix]] = {}
    for prefix in prefixes:
        groups.setdefault(len(prefix), []).append(prefix)
    return list(groups.values())


class _Bounds:
    """Bounds the entries that begin with a prefix; for a full index the bound is the entry."""

    def __init__(self, tensor: Queries) -> None:
        self.structure, self.optimize = tensor.structure, tensor.optimize
        self.limit = tensor.memory_limit // 8
        self.depth, self.shape = tensor.ndim, tensor.shape
        self.log = self.structure.normalized and sum(map(log, self.shape)) > _LOG_DOMAIN
        tensor.check_finite()
        # float64 throughout: two entries that differ should not become ties.
        cores = [x.detach().double() for x in tensor.operands(log=self.log)]
        self.device = cores[0].device
        # Cores with a sign are bounded by their absolute values.
        self.signed = not self.log and any(bool((x < 0).any()) for x in cores)
        self.exact = cores
        self.cores = [x.abs() for x in cores] if self.signed else cores
        self.maxima = {e: self.cores[e].amax(0) for e in self.structure.free}
        self.log_total = 0.0
        if self.structure.normalized:
            with torch.no_grad():
                self.log_total = float(tensor.log_total(tuple(range(len(cores)))))
        self.count = 0

    def expand(self, prefixes: Tensor) -> tuple[Tensor, Tensor]:
        """Add every choice of the next edge: the bounds ``(B * C,)`` and the longer prefixes."""
        length = prefixes.shape[1]
        size = self.shape[length]
        parents = prefixes.repeat_interleave(size, dim=0)
        choices = torch.arange(size).repeat(len(prefixes)).unsqueeze(1)
        children = torch.cat([parents, choices], dim=1)
        self.count += len(children)
        bounds = self._bound(children.to(self.device)).cpu()
        if bool((bounds.isnan() | (bounds == inf)).any()):
            raise ValueError("the entries overflow float64: scale the cores down")
        return bounds, children

    def _bound(self, prefixes: Tensor) -> Tensor:
        length = prefixes.shape[1]
        rest = frozenset(self.structure.free[length:])
        settings = {"batch": len(prefixes), "optimize": self.optimize, "limit": self.limit}
        plan = cast(TablePlan, fetch(self.structure.fix(rest), "entries", **settings))
        cores = self.cores if rest else self.exact
        operands = [self.maxima[e] if e in rest else core for e, core in enumerate(cores)]
        semiring = LOG_SUM_EXP if self.log else SUM_PRODUCT
        return plan(operands, prefixes, semiring=semiring)

    def scaled(self, bound: float) -> float:
        """A bound as a value of the tensor."""
        return exp(bound - self.log_total) if self.log else bound * exp(-self.log_total)


class _Found:
    """The best ``k`` entries so far. Values that agree to ten digits are ties."""

    def __init__(self, k: int) -> None:
        self.k = k
        self._kept: list[tuple[float, Prefix]] = []  # ascending in (-value, index)

    @property
    def threshold(self) -> float:
        """The value of the last of the ``k`` entries, minus infinity while there are fewer."""
        return -self._kept[-1][0] if len(self._kept) == self.k else -inf

    def wants(self, bound: float, prefix: Prefix) -> bool:
        """Whether an entry that begins with ``prefix`` could be among the best."""
        if len(self._kept) < self.k:
            return True
        threshold, bound = self.threshold, _rounded(bound)
        if bound == threshold:  # a tie: the smaller index wins
            return prefix <= self._kept[-1][1][: len(prefix)]
        return bound > threshold

    def promising(self, bounds: Tensor, prefixes: Tensor) -> Iterable[tuple[float, Prefix]]:
        """Those of a batch that are wanted; most are dropped before they become Python objects."""
        slack = 1e-9 * abs(self.threshold) if self.threshold > -inf else 0.0
        near = (bounds >= self.threshold - slack).nonzero().squeeze(1)
        pairs = zip(bounds[near].tolist(), map(tuple, prefixes[near].tolist()), strict=True)
        return (pair for pair in pairs if self.wants(*pair))

    def add(self, value: float, index: Prefix) -> None:
        """Keep an entry if it is among the best."""
        entry = (-_rounded(value), index)
        place = bisect_left(self._kept, entry)
        known = place < len(self._kept) and self._kept[place] == entry
        if self.wants(value, index) and not known:
            self._kept.insert(place, entry)
            del self._kept[self.k :]

    def entries(self) -> list[Prefix]:
        """The indices, best first."""
        return [index for _, index in self._kept]


def _rounded(value: float) -> float:
    return float(f"{value:.10g}")
