"""What can be asked of a tensor network over a DAG: entries, sums, marginals, samples, maxima.

`Queries` is what a `DagTensor`, and what is left of it under a condition, have in common. A query
selects operands and indices, takes its plan from `query_plans.py` and runs it over a semiring.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from cmath import isnan
from collections.abc import Iterable, Mapping, Sequence
from math import exp, inf, prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tensus_tn._arguments import check_size
from tensus_tn._torch_modes import inspectable
from tensus_tn.dag import Dag, Edge
from tensus_tn.network import query_plans
from tensus_tn.network.index import check_entry, check_rows, is_batch
from tensus_tn.network.plan import Plan
from tensus_tn.network.sampling import draw, draw_one_hot
from tensus_tn.network.semiring import LOG_SUM_EXP, SUM_PRODUCT, Semiring
from tensus_tn.network.structure import Structure
from tensus_tn.network.tables import TablePlan
from tensus_tn.network.top_k import TopK, best_first
from tensus_tn.network.typing import Indices, Optimize

Choice = int | str
Index = Tensor | Sequence[int] | int

# Above this log of the number of rank states, a sum over them may overflow before it is divided by
# their number; such entries are computed in the log domain.
_MANY_STATES = 40.0


class Queries(ABC):
    """The questions that a network over a DAG answers."""

    structure: Structure
    choice_names: dict[Edge, tuple[str, ...]]
    optimize: Optimize
    memory_limit: int

    @abstractmethod
    def _operands(self, *, log: bool = False, dtype: torch.dtype | None = None) -> list[Tensor]:
        """One tensor for each edge, or its logarithm, with the indices of `structure.terms`.

        They are computed in `dtype`, that of the parameters when None.
        """

    @abstractmethod
    def condition(self, choices: Mapping[Edge, Choice]) -> Queries:
        """Fix the choices of some edges."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """The dtype of the cores."""

    @property
    def dag(self) -> Dag:
        """The graph that the network is built over."""
        return self.structure.dag

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The edges that are axes of this tensor, in order."""
        return tuple(self.dag.edges[e] for e in self.structure.free)

    @property
    def shape(self) -> torch.Size:
        """The number of choices along each axis."""
        return torch.Size(self.structure.shape)

    @property
    def ndim(self) -> int:
        """The order of the tensor."""
        return len(self.structure.free)

    def __iter__(self) -> None:  # without it, Python would iterate by __getitem__
        raise TypeError(f"{type(self).__name__} is not iterable; use to_dense()")

    def __getitem__(self, index: Index) -> Tensor:
        """Entries at `index`: integers `(M,)` in the order of the edges, or a batch `(..., M)`.

        Example:
            >>> from tensus_tn import Dag, DagTensor
            >>> t = DagTensor(Dag.complete(2), choices=3, rank=2)
            >>> t[0, 2, 1].shape, t[torch.zeros(5, 3, dtype=torch.long)].shape
            (torch.Size([]), torch.Size([5]))
        """
        return self._entries(index)

    def _entries(self, index: Index, dtype: torch.dtype | None = None) -> Tensor:
        states = self.structure.log_states
        if self.structure.normalized and (self.structure.fixed or states > _MANY_STATES):
            return self._log_entries(index, dtype).exp()
        value = self._evaluate(index, SUM_PRODUCT, dtype)
        return value * exp(-states) if self.structure.normalized else value

    def log_prob(self, index: Index) -> Tensor:
        """The logarithm of entries, right even where the entries themselves underflow.

        That of an entry of probability zero is minus infinity, with a gradient of zero.

        Example:
            >>> from tensus_tn import Dag, DagTensor
            >>> t = DagTensor(Dag.path(500), choices=4, rank=2)
            >>> i = torch.zeros(500, dtype=torch.long)
            >>> bool(t.log_prob(i).isfinite()), float(t[i].detach())
            (True, 0.0)
        """
        self._need_distribution("log_prob")
        return self._log_entries(index)

    def _log_entries(self, index: Index, dtype: torch.dtype | None = None) -> Tensor:
        return self._evaluate(index, LOG_SUM_EXP, dtype) - self._log_total(dtype)

    def _evaluate(
        self, index: Index, semiring: Semiring, dtype: torch.dtype | None = None
    ) -> Tensor:
        operands = self._operands(log=semiring is LOG_SUM_EXP, dtype=dtype)
        if is_batch(index):
            index = torch.as_tensor(index, device=operands[0].device)
            rows = check_rows(index, self.structure.shape)
            plan = query_plans.entries(self.structure, rows.shape[0], *self._planning())
            value = plan(operands, rows, semiring=semiring)
            value = value.reshape(index.shape[:-1])
        else:
            for e, choice in zip(
                self.structure.free, check_entry(index, self.structure.shape), strict=True
            ):
                operands[e] = operands[e][choice]
            value = query_plans.entry(self.structure, *self._planning())(
                *operands, semiring=semiring
            )
        return self._check_nan(value)

    def sum(self) -> Tensor:
        """The sum of all entries: 1 for softmax cores (Proposition 1), a contraction for free ones.

        Example:
            >>> from tensus_tn import Dag, DagTensor
            >>> DagTensor(Dag.complete(5), choices=6, rank=4).sum().item()
            1.0
        """
        return self.marginal(())

    def to_dense(self, *, memory_limit: int | None = None) -> Tensor:
        """All entries as one tensor of shape `shape`.

        Args:
            memory_limit: Bytes, instead of the limit that the tensor was made with.

        Raises:
            ValueError: If the result is above the limit; the message names its size.

        Example:
            >>> from tensus_tn import Dag, DagTensor
            >>> DagTensor(Dag.complete(2), choices=3, rank=2).to_dense().shape
            torch.Size([3, 3, 3])
        """
        return self._marginal(self.structure.free, memory_limit)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """All entries as an array of numpy, detached."""
        return np.asarray(self.to_dense().detach().cpu().numpy(), dtype)

    def marginal(self, edges: Iterable[Edge]) -> Tensor:
        """The sum over the choices of all other edges; the axes have the order of `edges`.

        Example:
            >>> from tensus_tn import Dag, DagTensor
            >>> t = DagTensor(Dag.complete(2), choices={(0, 1): 3, (0, 2): 4, (1, 2): 5}, rank=2)
            >>> t.marginal([(1, 2), (0, 1)]).shape
            torch.Size([5, 3])
        """
        return self._marginal(tuple(self._edge_number(edge) for edge in edges), None)

    def _marginal(self, kept: Indices, memory_limit: int | None) -> Tensor:
        if len(set(kept)) < len(kept):
            raise ValueError(f"an edge is named twice in {[self.dag.edges[e] for e in kept]}")
        normalized, used = self.structure.normalized, query_plans.used_edges(self.structure, kept)
        # A product of many fixed cores underflows, and a sum over many rank states overflows.
        states = self.structure.log_states_of(used)
        log = normalized and (bool(self.structure.fixed) or states > _MANY_STATES)
        operands = self._operands(log=log)
        limit = self._limit(memory_limit)
        size = prod([self.structure.choices[e] for e in kept])
        if size > limit:
            raise ValueError(
                f"the result has {size:,} entries ({size * operands[0].element_size():,} bytes), above "
                f"the memory limit of {limit * operands[0].element_size():,} bytes; raise memory_limit"
            )
        if len(kept) > 64:
            raise ValueError(f"torch has at most 64 dimensions, the result would have {len(kept)}")
        if normalized and not kept:
            if inspectable(operands[0]):
                self._check_finite()
            return 0.0 * self._operands()[0].sum() + 1.0
        plan = query_plans.marginal(self.structure, kept, self.optimize, limit)
        value = plan(*(operands[e] for e in used), semiring=LOG_SUM_EXP if log else SUM_PRODUCT)
        if log:
            self._refuse_impossible(value)
            # All of it sums to one: so rounding errors of long products cancel.
            value = torch.softmax(value.flatten(), dim=0).reshape(value.shape)
        elif normalized:
            value = value * exp(-states)
        return self._check_nan(value)

    def marginals(self) -> dict[Edge, Tensor]:
        """The marginal of every edge, from one contraction and its backward pass.

        The derivative of the sum of all entries by a core, times the core, is the share of the sum
        that each element of the core has. Softmax cores need no contraction at all.

        Example:
            >>> from tensus_tn import Dag, DagTensor
            >>> {e: m.shape for e, m in DagTensor(Dag.path(2), choices=3, rank=2).marginals().items()}
            {(0, 1): torch.Size([3]), (1, 2): torch.Size([3])}
        """
        normalized, free = self.structure.normalized, self.structure.free
        if normalized and not self.structure.fixed:
            shares = [x / prod(x.shape[1:]) for x in self._operands()]
        else:
            grad_wanted = torch.is_grad_enabled()
            with torch.inference_mode(False), torch.enable_grad():
                operands = self._operands(log=normalized)
                operands = [x if x.requires_grad else x.detach().requires_grad_() for x in operands]
                plan = query_plans.total(self.structure, *self._planning())
                total = plan(*operands, semiring=LOG_SUM_EXP if normalized else SUM_PRODUCT)
                if normalized:
                    self._refuse_impossible(total)
                one = torch.ones_like(total)
                grads = torch.autograd.grad(total, operands, one, create_graph=grad_wanted)
            # For logarithms the derivative itself is the share, already divided by the sum; to divide
            # again takes away the rounding errors of long products.
            pairs = zip(operands, grads, strict=True)
            # The derivative by a complex number comes as its conjugate.
            shares = [g / g.sum() if normalized else x * g.conj() for x, g in pairs]
        sums = {self.dag.edges[e]: shares[e].reshape(len(shares[e]), -1).sum(1) for e in free}
        return {edge: self._check_nan(value) for edge, value in sums.items()}

    def inner(self, other: Queries) -> Tensor:
        """The sum over all entries of the product with another network of the same shape.

        Of complex networks the entries of the first are conjugated, as by `torch.vdot`. The networks
        may have different graphs. The work is done in float64 or complex128.

        Example:
            >>> from tensus_tn import Dag, DagTensor
            >>> a = DagTensor(Dag.path(3), choices=4, rank=2, parametrization="free")
            >>> b = DagTensor(Dag.complete(2), choices=4, rank=2)
            >>> bool(torch.allclose(a.inner(b), (a.to_dense() * b.to_dense()).sum()))
            True
        """
        return self._inner(other).to(torch.promote_types(self.dtype, other.dtype))

    def _inner(self, other: Queries) -> Tensor:
        if self.shape != other.shape:
            raise ValueError(f"the shapes differ: {tuple(self.shape)} and {tuple(other.shape)}")
        plan = query_plans.inner_product(self.structure, other.structure, *self._planning())
        # Of two distributions, the sum over all ranks may overflow before it is divided.
        log = self.structure.normalized and other.structure.normalized
        wide = wide_dtype(torch.promote_types(self.dtype, other.dtype))
        first, second = (t._operands(log=log, dtype=wide) for t in (self, other))
        value = plan(
            *(x.conj() for x in first), *second, semiring=LOG_SUM_EXP if log else SUM_PRODUCT
        )
        for tensor in (self, other):
            if tensor.structure.normalized:
                total = torch.as_tensor(
                    tensor._log_total(torch.float64), dtype=torch.float64, device=value.device
                )
                value = value - total if log else value * total.neg().exp()
        value = value.exp() if log else value
        self._check_nan(value)
        return other._check_nan(value)

    def norm(self) -> Tensor:
        """The square root of the sum of the squared absolute values of the entries.

        Example:
            >>> from tensus_tn import Dag, DagTensor
            >>> t = DagTensor(Dag.path(3), choices=4, rank=2, parametrization="free")
            >>> bool(torch.allclose(t.norm(), t.to_dense().norm()))
            True
        """
        return self._inner(self).real.clamp_min(0).sqrt().to(self.dtype.to_real())

    def dist(self, other: Queries) -> Tensor:
        """The norm of the difference to another network of the same shape.

        It comes from three inner products in float64, so a distance below 1e-8 of the norms is lost
        in rounding.

        Example:
            >>> from tensus_tn import Dag, DagTensor
            >>> a, b = (DagTensor(Dag.path(3), choices=4, rank=2) for _ in range(2))
            >>> bool(torch.allclose(a.dist(b), (a.to_dense() - b.to_dense()).norm(), atol=1e-6))
            True
        """
        squared = self._inner(self) - 2 * self._inner(other).real + other._inner(other)
        dtype = torch.promote_types(self.dtype, other.dtype).to_real()
        return squared.real.clamp_min(0).sqrt().to(dtype)

    def entropy(
        self, *, samples: int | None = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """The entropy `-sum T log T` of the distribution, in nats.

        Args:
            samples: None for the exact value, which enumerates all entries; a number for an unbiased
                estimate from that many samples, whose gradient is unbiased too.
            generator: The source of the samples.

        Raises:
            ValueError: If the exact value would enumerate more than `memory_limit`.

        Example:
            >>> from tensus_tn import Dag, DagTensor
            >>> t = DagTensor(Dag.path(3), choices=4, rank=2, init_scale=0.0)
            >>> round(t.entropy().item(), 4) == round(3 * torch.log(torch.tensor(4.0)).item(), 4)
            True
        """
        self._need_distribution("entropy")
        if samples is None:
            dense = self.to_dense()
            # An entry of zero adds nothing, nor does its gradient.
            return -(dense * torch.where(dense > 0, dense, 1.0).log()).sum()
        log_prob = self.log_prob(self.sample(samples, generator=generator))
        value = log_prob.detach()
        # The gradient of the entropy is -E[log T * grad log T], and E[grad log T] is zero: the mean
        # as a baseline, of the other samples, keeps it unbiased and lowers its variance.
        baseline = (value.sum() - value) / max(samples - 1, 1)
        return -value.mean() - ((value - baseline) * (log_prob - value)).mean()

    def sample(self, num: int, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw `(num, M)` indices from the distribution, exactly: ranks first, then choices.

        Many are drawn in pieces that fit `memory_limit`, so it has a part in which ones are drawn.

        Example:
            >>> from tensus_tn import Dag, DagTensor
            >>> t = DagTensor(Dag.complete(3), choices=4, rank=2)
            >>> t.sample(1000, generator=torch.Generator().manual_seed(0)).shape
            torch.Size([1000, 6])
        """
        self._need_distribution("sample")
        check_size("num", num)
        self._check_finite()
        return draw(self.structure, self._wide_logs(), num, generator, self._limit())

    def rsample(
        self, num: int, *, temperature: float = 1.0, generator: torch.Generator | None = None
    ) -> dict[Edge, Tensor]:
        """Draw one-hot choices `{edge: (num, C_e)}` that carry gradients (straight-through Gumbel).

        The values are exact samples; the gradient is that of the relaxation at `temperature`.

        Example:
            >>> from tensus_tn import Dag, DagTensor
            >>> draws = DagTensor(Dag.path(2), choices=3, rank=2).rsample(10)
            >>> draws[0, 1].shape, draws[0, 1].requires_grad
            (torch.Size([10, 3]), True)
        """
        self._need_distribution("rsample")
        if not temperature > 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        check_size("num", num)
        self._check_finite()
        largest = num * max(self.structure.shape)
        if largest > self._limit():
            raise ValueError(
                f"the draws have {largest:,} entries, above the memory limit of {self._limit():,}; "
                f"draw fewer at a time, or raise memory_limit"
            )
        draws = draw_one_hot(
            self.structure, self._wide_logs(), num, temperature, generator, self._limit()
        )
        return {self.dag.edges[e]: one_hot.to(self.dtype) for e, one_hot in draws.items()}

    def _wide_logs(self) -> list[Tensor]:
        """The logarithms that draws are made with: in float32 at least, or they would be biased."""
        return self._operands(log=True, dtype=torch.promote_types(self.dtype, torch.float32))

    def top_k(self, k: int = 1, *, budget: int = 1_000_000) -> TopK:
        """The `k` largest entries, exactly, without enumerating them; ties are ordered by index.

        Args:
            k: How many; all of them where the tensor has fewer.
            budget: How many partial entries the search may bound. On a flat tensor the proof can
                take too long; then the best entries found are returned with `exact=False` and the
                gap to the bound.

        Example:
            >>> from tensus_tn import Dag, DagTensor
            >>> t = DagTensor(Dag.complete(4), choices=6, rank=2)
            >>> best = t.top_k(3)
            >>> best.index.shape, best.exact
            (torch.Size([3, 10]), True)
        """
        check_size("k", k)
        check_size("budget", budget)
        if self.dtype.is_complex:
            raise ValueError(f"entries of {self.dtype} have no order, so none is the largest")
        self._check_finite()
        with torch.no_grad():
            cores = self._operands(log=self.structure.normalized, dtype=torch.float64)
            log_total = 0.0
            if self.structure.normalized:
                log_total = float(self._log_total(torch.float64))
            limit = self.memory_limit // cores[0].element_size()
            index, exact, gap = best_first(
                self.structure, cores, k, budget, log_total, optimize=self.optimize, limit=limit
            )
        # The search decides in float64; what is returned is rounded from there, and in order.
        value = self._entries(index, torch.float64).to(self.dtype)
        order = value.detach().argsort(descending=True, stable=True)
        return TopK(index[order], value[order], exact, gap)

    def plan(self, query: str, *, batch: int = 1, edges: Iterable[Edge] = ()) -> Plan | TablePlan:
        """The compiled plan of a query, to look at or to call.

        Args:
            query: `"entries"` (also used by `log_prob`), `"sum"`, `"marginal"` or `"dense"`.
            batch: The number of entries.
            edges: The edges of the marginal.

        Example:
            >>> from tensus_tn import Dag, DagTensor
            >>> t = DagTensor(Dag.path(2), choices=3, rank=2, parametrization="free")
            >>> print(t.plan("sum"))
            equation   ab,cb->
            flops      16 (10^1.2)
            largest    2 entries
            treewidth  0
                2 = (0)        ab->b
                3 = (1)        cb->b
                4 = (2, 3)     b,b->
        """
        kept = tuple(self._edge_number(edge) for edge in edges)
        if query == "entries":
            if batch == 1:
                return query_plans.entry(self.structure, *self._planning())
            return query_plans.entries(self.structure, batch, *self._planning())
        if query in ("sum", "marginal"):
            return query_plans.marginal(self.structure, kept, *self._planning())
        if query == "dense":
            return query_plans.marginal(self.structure, self.structure.free, *self._planning())
        raise ValueError(f"query must be 'entries', 'sum', 'marginal' or 'dense', got {query!r}")

    def _planning(self) -> tuple[Optimize, int]:
        """How plans are found, and the most entries that a tensor of theirs may have."""
        return self.optimize, self._limit()

    def _log_total(self, dtype: torch.dtype | None = None) -> Tensor | float:
        """The log of the sum over all ranks of the product of the fixed cores: `log Z` without any."""
        structure = self.structure
        if not structure.fixed:
            return structure.log_states
        fixed = tuple(sorted(structure.fixed))
        logs = self._operands(log=True, dtype=dtype)
        plan = query_plans.marginal(structure, (), *self._planning())
        total = plan(*(logs[e] for e in fixed), semiring=LOG_SUM_EXP)
        self._refuse_impossible(total)
        return total + (structure.log_states - structure.log_states_of(fixed))

    def _refuse_impossible(self, logs: Tensor) -> None:
        """Raise a ValueError if `logs`, of probabilities up to a factor, say that all are zero."""
        if inspectable(logs) and bool((logs == -inf).all()):
            raise ValueError("the condition has probability zero: nothing can be said given it")

    def _limit(self, memory_limit: int | None = None) -> int:
        """The memory limit as a number of entries."""
        if memory_limit is None:
            return self.memory_limit // self.dtype.itemsize
        return check_size("memory_limit", memory_limit) // self.dtype.itemsize

    def _edge_number(self, edge: Edge) -> int:
        if edge not in self.edges:
            raise ValueError(f"{edge!r} is not among the edges {list(self.edges)}")
        return self.dag.edges.index(edge)

    def _fixed_choices(self, choices: Mapping[Edge, Choice]) -> dict[int, int]:
        """The choices of edges, by numbers, from edges and numbers or names."""
        numbers = {}
        for edge, choice in choices.items():
            e = self._edge_number(edge)
            names = self.choice_names.get(edge, ())
            if isinstance(choice, str):
                if choice not in names:
                    raise ValueError(f"edge {edge!r} has no choice {choice!r}, only {list(names)}")
                choice = names.index(choice)
            numbers[e] = check_entry([choice], self.structure.choices[e : e + 1])[0]
        return numbers

    def _need_distribution(self, query: str) -> None:
        if not self.structure.normalized:
            raise ValueError(f"{query} needs a distribution: parametrization='softmax', not 'free'")

    def _check_finite(self) -> None:
        """Raise a ValueError that names the first edge with NaN, or an impossible condition."""
        check_not_nan(dict(zip(self.dag.edges, self._operands(), strict=True)))
        if self.structure.normalized and self.structure.fixed:
            self._log_total()

    def _check_nan(self, value: Tensor) -> Tensor:
        """Pass a result on, unless it is NaN because a parameter is."""
        if not inspectable(value):
            return value
        # The sum of many is NaN if one is, and much cheaper than to look at each.
        if isnan((value.sum() if value.ndim else value).item()):
            self._check_finite()
        return value


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """What sums over many entries are computed in: float64, or complex128.

    Example:
        >>> wide_dtype(torch.float16), wide_dtype(torch.complex64)
        (torch.float64, torch.complex128)
    """
    return torch.complex128 if dtype.is_complex else torch.float64


def check_not_nan(cores: Mapping[Edge, Tensor]) -> None:
    """Raise a ValueError that names the first edge whose core has NaN."""
    for edge, core in cores.items():
        if bool(core.isnan().any()):
            raise ValueError(
                f"the parameters of edge {edge!r} contain NaN or infinity, or forbid every choice"
            )
