"""The largest entries of a network, exactly, by best-first search with a bound.

A partial entry fixes the choices of the first edges. No entry that begins like it can be larger than
the contraction in which every other core is replaced by its maximum over choices, so a partial entry
whose bound is below the `k`-th best entry found is dropped with all that it stands for. The sum over
ranks is taken exactly, before the maximum over choices (a marginal MAP): a maximum over the ranks too
would find other entries.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from math import inf, log, prod

import torch
from torch import Tensor
from torch.nn.functional import pad

from tensus_tn.network import query_plans
from tensus_tn.network.semiring import LOG_SUM_EXP, SUM_PRODUCT
from tensus_tn.network.structure import Structure
from tensus_tn.network.typing import Optimize

_BEAM = 64  # prefixes kept at each depth for the first guess
_BATCH = 1024  # prefixes expanded at once
_DIGITS = 12  # values that agree so far are ties: less is noise in float64

Prefix = tuple[int, ...]


@dataclass(frozen=True)
class TopK:
    """The largest entries of a tensor.

    Attributes:
        index: `(k, M)`, in descending order of the entries; ties in ascending order of the index.
        value: `(k,)`, the entries, computed in float64 and then rounded; differentiable.
        exact: Whether it is proven that no other entry is larger, by more than the rounding of
            float64 (12 digits).
        gap: How much larger than the last of these an entry could be that was not found; 0 if exact.
    """

    index: Tensor
    value: Tensor
    exact: bool
    gap: float


def best_first(
    structure: Structure,
    cores: list[Tensor],
    k: int,
    budget: int,
    log_total: float,
    *,
    optimize: Optimize,
    limit: int,
) -> tuple[Tensor, bool, float]:
    """Find the `k` largest entries, bounding at most `budget` prefixes.

    Args:
        structure: The network.
        cores: Its operands in float64; their logarithms if the network is normalised.
        k: How many entries.
        budget: How many prefixes may be bounded.
        log_total: The logarithm of what the entries are divided by.
        optimize: How to find contraction paths.
        limit: The most entries that one tensor may have.

    Returns:
        `index`, `exact` and `gap` of `TopK`.
    """
    bounds = _Bounds(structure, cores, log_total, optimize, limit)
    found = _Found(min(k, prod(structure.shape)), log=bounds.log)
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
    gap = 0.0
    if not exact:
        ends = torch.tensor([found.threshold, -heap[0][0]], dtype=torch.float64)
        gap = max(float(bounds.scaled(ends).diff()), 0.0)
    return torch.tensor(found.entries(), device=bounds.device), exact, gap


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
    """Bounds the entries that begin with a prefix; for a full index the bound is the entry.

    Entries may be too small for any float. So the cores are scaled to a largest element of one, and
    those of a distribution, which have no sign, are logarithms. All is float64: two entries that
    differ should not become ties.
    """

    def __init__(
        self,
        structure: Structure,
        cores: list[Tensor],
        log_total: float,
        optimize: Optimize,
        limit: int,
    ) -> None:
        self.structure, self.optimize, self.limit = structure, optimize, limit
        self.depth, self.shape = len(structure.shape), structure.shape
        self.log = structure.normalized
        if self.log:
            largest = [float(x.max()) for x in cores]
            cores = [x - peak for x, peak in zip(cores, largest, strict=True)]
            self.log_scale = sum(largest) - log_total
        else:
            largest = [float(x.abs().max()) or 1.0 for x in cores]
            cores = [x / peak for x, peak in zip(cores, largest, strict=True)]
            self.log_scale = sum(map(log, largest)) - log_total
        self.device = cores[0].device
        # Cores with a sign are bounded by their absolute values.
        self.signed = not self.log and any(bool((x < 0).any()) for x in cores)
        self.exact = cores
        self.cores = [x.abs() for x in cores] if self.signed else cores
        self.maxima = {e: self.cores[e].amax(0) for e in self.structure.free}
        self.count = 0

    def expand(self, prefixes: Tensor) -> tuple[Tensor, Tensor]:
        """Add every choice of the next edge: the bounds `(B * C,)` and the longer prefixes."""
        length = prefixes.shape[1]
        size = self.shape[length]
        parents = prefixes.repeat_interleave(size, dim=0)
        choices = torch.arange(size).repeat(len(prefixes)).unsqueeze(1)
        children = torch.cat([parents, choices], dim=1)
        self.count += len(children)
        bounds = self._bound(children.to(self.device)).cpu()
        values = self.scaled(bounds)
        if bool((values.isnan() | (values == inf)).any()):
            raise ValueError("the entries overflow float64: scale the cores down")
        return bounds, children

    def _bound(self, prefixes: Tensor) -> Tensor:
        closed = self.structure.free[: prefixes.shape[1]]
        rest = frozenset(self.structure.free[len(closed) :])
        cores = self.cores if rest else self.exact
        operands = [self.maxima[e] if e in rest else core for e, core in enumerate(cores)]
        # Cores without a rank are factors of their own: a plan of many of them would take long to
        # make. The last edge stays, so that the plan has something to look up.
        ranks = self.structure.core_ranks
        tied = tuple(e for e in range(len(cores)) if ranks[e] or e == closed[-1])
        column = {e: number for number, e in enumerate(closed)}
        open_structure = self.structure.fix(rest)
        plan = query_plans.entries(open_structure, len(prefixes), self.optimize, self.limit, tied)
        semiring = LOG_SUM_EXP if self.log else SUM_PRODUCT
        looked_up = prefixes[:, [column[e] for e in tied if e in column]]
        value = plan([operands[e] for e in tied], looked_up, semiring=semiring)
        alone = [e for e in range(len(cores)) if e not in tied]
        factors = _look_up([operands[e] for e in alone], list(map(column.get, alone)), prefixes)
        return value + factors.sum(1) if self.log else value * factors.prod(1)

    def scaled(self, bounds: Tensor) -> Tensor:
        """Bounds as values of the tensor."""
        if self.log:
            return (bounds + self.log_scale).exp()
        return bounds.sign() * (bounds.abs().log() + self.log_scale).exp()


def _look_up(cores: list[Tensor], columns: list[int | None], prefixes: Tensor) -> Tensor:
    """The values `(B, E)` of cores `(C,)` at columns of `prefixes`; a core `()` has none."""
    flat = [core.reshape(-1) for core in cores]
    starts = [0, *accumulate(map(len, flat))]
    # One more column, of zeros, finds the only value of a core that has none.
    choices = pad(prefixes, (0, 1))[:, [-1 if column is None else column for column in columns]]
    positions = choices + torch.tensor(starts[:-1], dtype=torch.long, device=prefixes.device)
    empty = torch.zeros(0, dtype=torch.float64, device=prefixes.device)
    return torch.cat([empty, *flat])[positions]


class _Found:
    """The best `k` entries so far, or their logarithms. Values that agree to 12 digits are ties."""

    def __init__(self, k: int, *, log: bool) -> None:
        self.k, self.log = k, log
        self._kept: list[tuple[float, Prefix]] = []  # ascending in (-value, index)
        self._seen: set[Prefix] = set()

    @property
    def threshold(self) -> float:
        """The value of the last of the `k` entries, minus infinity while there are fewer."""
        return -self._kept[-1][0] if len(self._kept) == self.k else -inf

    def wants(self, bound: float, prefix: Prefix) -> bool:
        """Whether an entry that begins with `prefix` could be among the best."""
        if len(self._kept) < self.k:
            return True
        threshold, bound = self.threshold, self._rounded(bound)
        if bound == threshold:  # a tie: the smaller index wins
            return prefix <= self._kept[-1][1][: len(prefix)]
        return bound > threshold

    def promising(self, bounds: Tensor, prefixes: Tensor) -> Iterable[tuple[float, Prefix]]:
        """Those of a batch that are wanted; most are dropped before they become Python objects."""
        unit = 1.0 if self.log or self.threshold == -inf else abs(self.threshold)
        near = (bounds >= self.threshold - 1e-9 * unit).nonzero().squeeze(1)
        pairs = zip(bounds[near].tolist(), map(tuple, prefixes[near].tolist()), strict=True)
        return (pair for pair in pairs if self.wants(*pair))

    def add(self, value: float, index: Prefix) -> None:
        """Keep an entry if it is among the best."""
        if self.wants(value, index) and index not in self._seen:
            self._seen.add(index)
            insort(self._kept, (-self._rounded(value), index))
            del self._kept[self.k :]

    def entries(self) -> list[Prefix]:
        """The indices, best first."""
        return [index for _, index in self._kept]

    def _rounded(self, value: float) -> float:
        # The digits of a value are the decimals of its logarithm.
        return round(value, _DIGITS) if self.log else float(f"{value:.{_DIGITS}g}")
