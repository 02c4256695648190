"""This library and its peers, each used as its authors mean it to be, and tuned.

A peer offers several variants of a task where it is not clear which is the fastest (layouts, paths,
modes); the best one is measured. All start from the same cores and the same `(B, M)` index. Layouts
of the cores, paths and expressions are prepared beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.tensor.problem import CHOICES, RANK, Problem
from tensus_tn import Dag, DagTensor, set_plan_cache_size

OURS = "tensus_tn"


class UnsupportedError(Exception):
    """A peer can't do this; the message says why."""


class Variant(NamedTuple):
    """A call to time, its leaves, and how gradients of the leaves become those of the cores."""

    call: Callable[[], Any]
    leaves: Sequence[Tensor] = ()
    to_cores: Callable[[Sequence[Tensor]], Sequence[Tensor]] = lambda gradients: gradients


class Peer:
    """What a library can do; a task that is not overridden is out of its scope."""

    name: str
    scope = "no network over a DAG: tensor trains only"

    def entries(self, problem: Problem) -> Iterable[Variant]:
        """The entries at `problem.index`, `(B,)`."""
        raise UnsupportedError(self.scope)

    def entry(self, problem: Problem) -> Iterable[Variant]:
        """The entry at the first index."""
        raise UnsupportedError(self.scope)

    def sum(self, problem: Problem) -> Iterable[Variant]:
        """The sum of all entries."""
        raise UnsupportedError(self.scope)

    def plan(self, problem: Problem) -> Iterable[Variant]:
        """Find a contraction order for the sum, from nothing."""
        raise UnsupportedError("has no contraction plans")

    def decompose(self, dense: Tensor) -> Callable[[], Tensor]:
        """A tensor train of rank 4 of a dense tensor; the call returns its dense reconstruction."""
        raise UnsupportedError("no decomposition of a dense tensor")


class Ours(Peer):
    name = OURS

    def _tensor(self, problem: Problem) -> DagTensor:
        tensor = DagTensor(problem.dag, CHOICES, RANK, parametrization="free")
        with torch.no_grad():
            for parameter, core in zip(tensor.parameters(), problem.cores, strict=True):
                parameter.copy_(core)
        return tensor

    def entries(self, problem: Problem) -> Iterable[Variant]:
        tensor = self._tensor(problem)
        yield Variant(lambda: tensor[problem.index], list(tensor.parameters()))

    def entry(self, problem: Problem) -> Iterable[Variant]:
        tensor, index = self._tensor(problem), tuple(problem.index[0].tolist())
        yield Variant(lambda: tensor[index])

    def sum(self, problem: Problem) -> Iterable[Variant]:
        yield Variant(self._tensor(problem).sum)

    def plan(self, problem: Problem) -> Iterable[Variant]:
        tensor = self._tensor(problem)

        def find() -> object:
            set_plan_cache_size(1024)  # empties the cache
            return tensor.plan("sum")

        yield Variant(find)

    def decompose(self, dense: Tensor) -> Callable[[], Tensor]:
        try:
            from tensus_tn.fitting.dense import decompose
        except ImportError as error:
            raise UnsupportedError("not there yet") from error

        dag = Dag.path(dense.ndim)
        return lambda: decompose(dense, dag, RANK, progress=False)[0].to_dense()


class Einsum(Peer):
    """Libraries that contract any network: gather a row of every core for each entry, contract."""

    def expressions(self, equation: str, shapes: list[tuple[int, ...]]) -> Iterable[Callable]:
        """Prepared contractions of operands with these shapes."""
        raise NotImplementedError

    def entries(self, problem: Problem) -> Iterable[Variant]:
        z, size = problem.batch, len(problem.index)
        shapes = [(RANK,) * len(term) for term in problem.terms]

        first = problem.operands()
        equation = f"{','.join(z + t for t in problem.terms)}->{z}"

        def batch_first() -> list[Tensor]:
            columns = problem.index.unbind(1)
            return [x.index_select(0, i) for x, i in zip(first, columns, strict=True)]

        for run in self.expressions(equation, [(size, *s) for s in shapes]):
            yield Variant(lambda run=run: run(*batch_first()), first)

        last = [x.detach().movedim(0, -1).contiguous().requires_grad_() for x in problem.operands()]
        equation = f"{','.join(t + z for t in problem.terms)}->{z}"

        def batch_last() -> list[Tensor]:
            columns = problem.index.unbind(1)
            return [
                x.view(-1, CHOICES).index_select(1, i).view(*s, size)
                for x, i, s in zip(last, columns, shapes, strict=True)
            ]

        for run in self.expressions(equation, [(*s, size) for s in shapes]):
            yield Variant(
                lambda run=run: run(*batch_last()), last, lambda gs: [g.movedim(-1, 0) for g in gs]
            )

    def entry(self, problem: Problem) -> Iterable[Variant]:
        operands, index = problem.operands(), problem.index[0].tolist()
        shapes = [(RANK,) * len(term) for term in problem.terms]
        for run in self.expressions(f"{','.join(problem.terms)}->", shapes):
            yield Variant(
                lambda run=run: run(*[x[i] for x, i in zip(operands, index, strict=True)])
            )

    def sum(self, problem: Problem) -> Iterable[Variant]:
        operands = problem.operands()
        equation, shapes = sum_equation(problem)
        for run in self.expressions(equation, shapes):
            yield Variant(lambda run=run: run(*operands))


def sum_equation(problem: Problem) -> tuple[str, list[tuple[int, ...]]]:
    terms = [c + t for c, t in zip(problem.choices, problem.terms, strict=True)]
    return f"{','.join(terms)}->", [(CHOICES, *[RANK] * (len(t) - 1)) for t in terms]


class OptEinsum(Einsum):
    name = "opt_einsum"

    def __init__(self) -> None:
        import opt_einsum

        self.contract_expression = opt_einsum.contract_expression

    def expressions(self, equation: str, shapes: list[tuple[int, ...]]) -> Iterable[Callable]:
        exact = "dp" if len(shapes) < 10 else "random-greedy-128"  # "dp" takes minutes for 15 cores
        for optimize in ("auto", exact):
            expression = self.contract_expression(equation, *shapes, optimize=optimize)
            yield lambda *xs, run=expression: run(*xs, backend="torch")

    def plan(self, problem: Problem) -> Iterable[Variant]:
        equation, shapes = sum_equation(problem)
        yield Variant(lambda: self.contract_expression(equation, *shapes, optimize="auto"))


class Cotengra(Einsum):
    name = "cotengra"

    def __init__(self) -> None:
        import cotengra

        self.cotengra = cotengra

    def expressions(self, equation: str, shapes: list[tuple[int, ...]]) -> Iterable[Callable]:
        for implementation in ("auto", "autoray"):
            yield self.cotengra.einsum_expression(
                equation, *shapes, optimize="auto-hq", implementation=implementation
            )

    def plan(self, problem: Problem) -> Iterable[Variant]:
        equation, shapes = sum_equation(problem)
        for make in (lambda: self.cotengra.AutoOptimizer(cache=False), lambda: "greedy"):
            yield Variant(
                lambda make=make: self.cotengra.einsum_expression(
                    equation, *shapes, optimize=make(), cache=False
                )
            )


class Quimb(Einsum):
    name = "quimb"

    def __init__(self) -> None:
        import quimb.tensor

        self.quimb = quimb.tensor

    def expressions(self, equation: str, shapes: list[tuple[int, ...]]) -> Iterable[Callable]:
        inputs, output = equation.split("->")
        indices = [tuple(term) for term in inputs.split(",")]

        def contract(*xs: Tensor) -> Tensor:
            parts = [self.quimb.Tensor(x, i) for x, i in zip(xs, indices, strict=True)]
            result = self.quimb.tensor_contract(
                *parts, output_inds=tuple(output), optimize="auto-hq"
            )
            return result.data if isinstance(result, self.quimb.Tensor) else result

        yield contract

    def plan(self, problem: Problem) -> Iterable[Variant]:
        raise UnsupportedError("plans with cotengra")

    def decompose(self, dense: Tensor) -> Callable[[], Tensor]:
        def run() -> Tensor:
            state = self.quimb.MatrixProductState.from_dense(
                dense, dims=dense.shape, max_bond=RANK, cutoff=0.0
            )
            return state.to_dense().reshape(dense.shape)

        return run


class TensorLy(Peer):
    name = "tensorly"

    def __init__(self) -> None:
        import tensorly
        from tensorly.decomposition import tensor_train
        from tensorly.tt_tensor import tt_to_tensor

        tensorly.set_backend("pytorch")
        self.tensor_train, self.tt_to_tensor = tensor_train, tt_to_tensor

    def entries(self, problem: Problem) -> Iterable[Variant]:
        if not problem.is_path:
            raise UnsupportedError(self.scope)
        leaves = problem.train()

        def dense_then_look_up() -> Tensor:  # the library has no other way to an entry
            return self.tt_to_tensor(leaves)[problem.index.unbind(1)]

        yield Variant(dense_then_look_up, leaves, lambda gs: [g.permute(1, 0, 2) for g in gs])

    def entry(self, problem: Problem) -> Iterable[Variant]:
        raise UnsupportedError("evaluates no single entry")

    def sum(self, problem: Problem) -> Iterable[Variant]:
        raise UnsupportedError("sums no factorised tensor")

    def decompose(self, dense: Tensor) -> Callable[[], Tensor]:
        ranks = [1, *[RANK] * (dense.ndim - 1), 1]
        return lambda: self.tt_to_tensor(self.tensor_train(dense, ranks))


class TnTorch(Peer):
    name = "tntorch"

    def __init__(self) -> None:
        import tntorch

        self.tntorch = tntorch

    def _train(self, problem: Problem) -> tuple[Any, list[Tensor]]:
        if not problem.is_path:
            raise UnsupportedError(self.scope)
        leaves = problem.train()
        return self.tntorch.Tensor(leaves), leaves

    def entries(self, problem: Problem) -> Iterable[Variant]:
        train, leaves = self._train(problem)
        yield Variant(
            lambda: train[problem.index].torch(),
            leaves,
            lambda gs: [g.permute(1, 0, 2) for g in gs],
        )

    def entry(self, problem: Problem) -> Iterable[Variant]:
        train, _ = self._train(problem)
        index = tuple(problem.index[0].tolist())
        yield Variant(lambda: train[index])

    def sum(self, problem: Problem) -> Iterable[Variant]:
        train, _ = self._train(problem)
        yield Variant(lambda: self.tntorch.sum(train))

    def decompose(self, dense: Tensor) -> Callable[[], Tensor]:
        return lambda: self.tntorch.Tensor(dense, ranks_tt=RANK).torch()


class TensorKrowch(Peer):
    name = "tensorkrowch"
    scope = "no index shared by more than two nodes"

    def __init__(self) -> None:
        import tensorkrowch

        self.tensorkrowch = tensorkrowch

    def _modes(self, problem: Problem, data: Callable[[], Tensor]) -> Iterable[Variant]:
        if not problem.is_path:
            raise UnsupportedError(self.scope)
        count = len(problem.cores)

        def to_cores(gradients: Sequence[Tensor]) -> list[Tensor]:
            cores = [core for g in gradients for core in (g if g.ndim == 4 else [g])]
            cores[0], cores[-1] = cores[0][:1], cores[-1][..., :1]
            return [core.permute(1, 0, 2) for core in cores]

        for inline_input in (False, True):
            for inline_mats in (False, True):
                first, *middle, last = [core.detach() for core in problem.train()]
                chain = self.tensorkrowch.models.MPS(tensors=[first[0], *middle, last[..., 0]])
                chain.auto_stack, chain.auto_unbind = True, False
                modes = {"inline_input": inline_input, "inline_mats": inline_mats}
                chain.trace(torch.zeros(1, count, CHOICES), **modes)
                leaves = [p for p in chain.parameters() if p.ndim > 1]

                yield Variant(
                    lambda chain=chain, modes=modes: chain(data(), **modes), leaves, to_cores
                )

    def _one_hot(self, index: Tensor) -> Tensor:
        one_hot: Tensor = self.tensorkrowch.embeddings.basis(index, dim=CHOICES)
        return one_hot.float()

    def entries(self, problem: Problem) -> Iterable[Variant]:
        return self._modes(problem, lambda: self._one_hot(problem.index))

    def entry(self, problem: Problem) -> Iterable[Variant]:
        index = problem.index[:1]
        return self._modes(problem, lambda: self._one_hot(index))

    def sum(self, problem: Problem) -> Iterable[Variant]:
        ones = torch.ones(1, len(problem.cores), CHOICES)
        return self._modes(problem, lambda: ones)

    def decompose(self, dense: Tensor) -> Callable[[], Tensor]:
        def run() -> Tensor:
            first, *cores = self.tensorkrowch.decompositions.vec_to_mps(dense, rank=RANK)
            for core in cores:
                first = torch.tensordot(first, core, dims=1)
            return first

        return run


PEERS: dict[str, type[Peer]] = {
    peer.name: peer for peer in (OptEinsum, Cotengra, Quimb, TensorLy, TnTorch, TensorKrowch)
}
