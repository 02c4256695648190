"""DagTensor: a tensor with one axis for each edge of a DAG, held as a network of small cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from math import exp, prod
from typing import Any, Literal, overload

import numpy as np
import torch
from torch import Tensor, nn

from tensus_tn._arguments import check_memory, check_size
from tensus_tn.dag import Dag, Edge, Node
from tensus_tn.network import algebra, interchange, resize
from tensus_tn.network.conditional import Conditional
from tensus_tn.network.planner import check_optimize
from tensus_tn.network.queries import Choice, Index, Queries, wide_dtype
from tensus_tn.network.structure import Choices, Rank, Ties, edge_choices, make_structure
from tensus_tn.network.typing import Optimize

Parametrization = Literal["softmax", "free"]


class DagTensor(nn.Module, Queries):
    r"""A tensor of order `M`, one axis for each edge of a DAG, as a network of cores.

    Every inner node `v` carries a rank index `r_v`, every edge `e = (j, k)` a core `W_e` of
    shape `(C_e, d_j, d_k)`, with size 1 for an end that has no rank (source and sink):

    $$
    T(i_1, \dots, i_M) = \frac{1}{Z} \sum_r \prod_e W_e(i_e, r_j, r_k)
    $$

    With `softmax` cores, `W_e(:, a, b) = softmax(B_e(:, a, b))` and `Z = prod_v d_v`, the tensor
    is a probability distribution (Proposition 1 of the paper). With `free` cores, `W_e` is any
    real or complex tensor and `Z = 1`: the plain structured decomposition. A path is the tensor
    train, rank 1 the rank-one product, and one rank index shared by all nodes (`ties="global"`) is
    CP.

    Args:
        dag: The graph.
        choices: How many choices the edges have: a number, a sequence of names, a mapping from
            every edge to one of these, or a sequence of sizes, one for each edge.
        rank: The rank of the inner nodes: a number, a sequence of numbers in the order of
            `dag.inner`, or a mapping from every inner node.
        parametrization: `"softmax"` or `"free"`.
        ties: `"node"`, a rank index for each inner node, or `"global"`, one for all of them.
        init_scale: The standard deviation of the logits (`softmax`) or, about, of the entries
            (`free`).
        dtype: The floating-point type of the parameters, complex too for `free` ones; torch's
            default when None.
        device: Where the parameters are.
        generator: The source of the initial values.
        optimize: How to find contraction paths; passed to opt_einsum, so also a cotengra optimizer.
        memory_limit: Bytes that one tensor of a query may take. Larger batches are cut into pieces and
            larger contractions sliced; a query that needs more all the same is refused, with its size.

    Example:
        >>> t = DagTensor(Dag([(0, 1), (1, 2), (0, 2)]), choices=["AP", "PA", "I"], rank=2)
        >>> t.shape, t.ndim, t.num_parameters
        (torch.Size([3, 3, 3]), 3, 15)
        >>> round(t.to_dense().sum().item(), 4)
        1.0
        >>> t.condition({(0, 1): "PA"}).marginal([(1, 2)]).shape
        torch.Size([3])
    """

    def __init__(
        self,
        dag: Dag,
        choices: Choices,
        rank: Rank = 1,
        *,
        parametrization: Parametrization = "softmax",
        ties: Ties = "node",
        init_scale: float = 1.0,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        generator: torch.Generator | None = None,
        optimize: Optimize = "auto",
        memory_limit: int = 2**30,
    ) -> None:
        super().__init__()
        if not isinstance(dag, Dag):
            raise TypeError(f"dag must be a Dag, got {type(dag).__name__}")
        if parametrization not in ("softmax", "free"):
            raise ValueError(
                f"parametrization must be 'softmax' or 'free', got {parametrization!r}"
            )
        if dtype is not None and not (
            dtype.is_floating_point or (dtype.is_complex and parametrization == "free")
        ):
            raise TypeError(
                f"dtype must be a floating-point type, or complex for free cores, got {dtype}"
            )
        sizes, self.choice_names = edge_choices(dag, choices)
        self.structure = make_structure(
            dag, sizes, rank, ties, normalized=parametrization == "softmax"
        )
        self.init_scale, self.optimize = init_scale, check_optimize(optimize)
        self.memory_limit = check_size("memory_limit", memory_limit)
        shapes = [self.structure.core_shape(e) for e in range(len(dag.edges))]
        check_memory(
            "parameters", sum(map(prod, shapes)), dtype or torch.get_default_dtype(), device
        )
        for e, shape in enumerate(shapes):
            core = torch.empty(shape, dtype=dtype, device=device)
            self.register_parameter(f"core_{e}", nn.Parameter(core))
        self.reset_parameters(generator)

    @classmethod
    def tensor_train(cls, shape: Sequence[int], rank: Rank, **settings: Any) -> DagTensor:
        """A tensor train with free cores: a network over a path.

        Args:
            shape: The sizes of the axes.
            rank: A number, a sequence (as TensorLy has it, with the ones at both ends, or without
                them), or a mapping from the inner nodes `1 .. M - 1`.
            settings: As for `DagTensor`.

        Example:
            >>> DagTensor.tensor_train((4, 5, 6), rank=3).cores()[1, 2].shape
            torch.Size([5, 3, 3])
        """
        dag = Dag.path(len(shape))
        choices = dict(zip(dag.edges, shape, strict=True))
        return cls(dag, choices, rank, **{"parametrization": "free", **settings})

    @classmethod
    def cp(cls, shape: Sequence[int], rank: int, **settings: Any) -> DagTensor:
        """A CP decomposition with free cores: a path whose nodes share one rank index.

        Example:
            >>> DagTensor.cp((4, 5, 6), rank=3).num_parameters
            45
        """
        return cls.tensor_train(shape, rank, **{"ties": "global", **settings})

    @classmethod
    def rank_one(cls, shape: Sequence[int], **settings: Any) -> DagTensor:
        """An outer product of vectors: what GTN and DiffMG use (eq. 6, with softmax cores).

        Example:
            >>> DagTensor.rank_one((4, 5, 6), parametrization="softmax").num_parameters
            15
        """
        return cls.tensor_train(shape, 1, **settings)

    @classmethod
    def from_tt(cls, cores: Sequence[Any]) -> DagTensor:
        """A network over a path from tensor-train cores `(r, n, r')` as TensorLy has them.

        They may be tensors or numpy arrays. The network takes the widest of their dtypes.

        Example:
            >>> t = DagTensor.from_tt([torch.ones(1, 4, 2), torch.ones(2, 5, 1)])
            >>> t[3, 4].item()
            2.0
        """
        given = interchange.read_tt(cores)
        ranks: dict[Node, int] = dict(enumerate(given.ranks, 1))
        settings = {"dtype": given.cores[0].dtype, "device": given.cores[0].device}
        return cls.tensor_train(given.shape, ranks or 1, **settings)._filled(given.cores)

    @overload
    def to_tt(self, *, numpy: Literal[False] = False) -> list[Tensor]: ...

    @overload
    def to_tt(self, *, numpy: Literal[True]) -> list[np.ndarray]: ...

    def to_tt(self, *, numpy: bool = False) -> list[Tensor] | list[np.ndarray]:
        """The cores `(r, n, r')` of a tensor train as TensorLy has them; for a path only.

        Args:
            numpy: Whether they are numpy arrays, not tensors with gradients.

        Example:
            >>> [tuple(core.shape) for core in DagTensor.tensor_train((4, 5, 6), rank=3).to_tt()]
            [(1, 4, 3), (3, 5, 3), (3, 6, 1)]
        """
        cores = interchange.write_tt(self.structure, self.cores().values())
        return interchange.as_arrays(cores) if numpy else cores

    @classmethod
    def from_cp(cls, weights: Any | None, factors: Sequence[Any]) -> DagTensor:
        """A network from CP weights `(d,)` and factors `(n, d)` as TensorLy has them.

        They may be tensors or numpy arrays. The network takes the widest of their dtypes.

        Example:
            >>> DagTensor.from_cp(None, [torch.ones(4, 3), torch.ones(5, 3)])[0, 0].item()
            3.0
        """
        given = interchange.read_cp(weights, factors)
        settings = {"dtype": given.cores[0].dtype, "device": given.cores[0].device}
        return cls.cp(given.shape, given.ranks[0], **settings)._filled(given.cores)

    @overload
    def to_cp(self, *, numpy: Literal[False] = False) -> tuple[Tensor, list[Tensor]]: ...

    @overload
    def to_cp(self, *, numpy: Literal[True]) -> tuple[np.ndarray, list[np.ndarray]]: ...

    def to_cp(
        self, *, numpy: bool = False
    ) -> tuple[Tensor, list[Tensor]] | tuple[np.ndarray, list[np.ndarray]]:
        """The weights `(d,)` and factors `(n, d)` of a CP decomposition as TensorLy has them.

        Args:
            numpy: Whether they are numpy arrays, not tensors with gradients.

        Raises:
            ValueError: Unless there is only one rank index (`ties="global"`), or all ranks are 1.

        Example:
            >>> weights, factors = DagTensor.cp((4, 5), rank=3).to_cp()
            >>> weights.shape, [tuple(factor.shape) for factor in factors]
            (torch.Size([3]), [(4, 3), (5, 3)])
        """
        weights, factors = interchange.write_cp(self.structure, self.cores().values())
        if not numpy:
            return weights, factors
        return weights.numpy(force=True), interchange.as_arrays(factors)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw new initial values.

        Example:
            >>> t = DagTensor(Dag.path(2), choices=3, rank=2)
            >>> t.reset_parameters(torch.Generator().manual_seed(0))
        """
        scale, num_cores = self.init_scale, len(self.structure.terms)
        if not self.structure.normalized:
            # An entry is a sum of Z products of M cores: so it gets the standard deviation asked for.
            scale = scale ** (1 / num_cores) * exp(-self.structure.log_states / (2 * num_cores))
        for core in self.parameters():
            nn.init.normal_(core, std=scale, generator=generator)

    @property
    def parametrization(self) -> Parametrization:
        """`"softmax"` or `"free"`."""
        return "softmax" if self.structure.normalized else "free"

    @property
    def ties(self) -> Ties:
        """`"global"` where one rank index is shared by several nodes, otherwise `"node"`."""
        return "node" if len(self.structure.ranks) == len(self.dag.inner) else "global"

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the cores."""
        first: Tensor = self._parameters["core_0"]  # type: ignore[assignment]
        return first.dtype

    @property
    def num_parameters(self) -> int:
        """The number of elements of all cores."""
        return sum(core.numel() for core in self.parameters())

    def forward(self, index: Index) -> Tensor:
        """The entries at `index`, as `t[index]`."""
        return self[index]

    def cores(self) -> dict[Edge, Tensor]:
        """The cores `{edge: W_e}` of shape `(C_e, d_j, d_k)`, normalised and differentiable.

        Example:
            >>> core = DagTensor(Dag.path(2), choices=3, rank=2).cores()[1, 2]
            >>> core.shape, bool(torch.allclose(core.sum(0), torch.ones(2, 1)))
            (torch.Size([3, 2, 1]), True)
        """
        cores: list[Tensor] = list(self.parameters())
        if self.structure.normalized:
            cores = [torch.softmax(logits, dim=0) for logits in cores]
        return dict(zip(self.dag.edges, cores, strict=True))

    def _operands(self, *, log: bool = False, dtype: torch.dtype | None = None) -> list[Tensor]:
        """One tensor for each edge, with the indices of `structure.terms`."""
        operands: list[Tensor] = list(self._parameters.values())  # type: ignore[arg-type]
        if self.structure.normalized:
            normalize = torch.log_softmax if log else torch.softmax
            operands = [normalize(logits, dim=0, dtype=dtype) for logits in operands]
        elif dtype is not None:
            operands = [core.to(dtype) for core in operands]
        for e in self.structure.squeezed:
            operands[e] = operands[e].reshape(self.structure.operand_shapes[e])
        return operands

    def condition(self, choices: Mapping[Edge, Choice]) -> Conditional:
        """Fix the choices of some edges, by number or name; what is left is a tensor of the others.

        With softmax cores it is the conditional distribution, with free cores the slice.

        Example:
            >>> t = DagTensor(Dag.complete(2), choices=3, rank=2)
            >>> left = t.condition({(0, 2): 1})
            >>> left.edges, left.shape
            (((0, 1), (1, 2)), torch.Size([3, 3]))
        """
        return Conditional(self, self._fixed_choices(choices))

    def grow(
        self, rank: Rank, *, noise: float = 0.0, generator: torch.Generator | None = None
    ) -> DagTensor:
        """The same function with higher ranks: every rank state becomes several copies of itself.

        So training can start small. With softmax cores a new rank is a multiple of the old one.

        Args:
            rank: The new rank of the inner nodes: a number or a mapping.
            noise: The standard deviation of noise on the new parameters, so that copies can part.
            generator: The source of the noise.

        Example:
            >>> t = DagTensor(Dag.complete(2), choices=3, rank=2)
            >>> bool(torch.allclose(t.grow(4).to_dense(), t.to_dense()))
            True
        """
        tensor = self._resized(rank, resize.grow)
        with torch.no_grad():
            for core in tensor.parameters() if noise else ():
                core.add_(torch.empty_like(core).normal_(std=noise, generator=generator))
        return tensor

    def shrink(self, rank: Rank) -> DagTensor:
        """Lower ranks by merging the states that are most alike; undoes `grow` exactly.

        Example:
            >>> t = DagTensor(Dag.complete(2), choices=3, rank=2)
            >>> bool(torch.allclose(t.grow(6).shrink(2).to_dense(), t.to_dense()))
            True
        """
        return self._resized(rank, resize.shrink)

    @torch.no_grad()
    def __add__(self, other: DagTensor) -> DagTensor:
        """The sum of two networks with free cores, as one with the ranks of both.

        Like `grow`, it makes a new network: gradients do not flow back to these two.

        Raises:
            ValueError: Unless they have the same graph, choices and ties, every edge has a rank (none
                joins source and sink), and all ranks are joined by edges, as on a path and in CP.

        Example:
            >>> a, b = (DagTensor.tensor_train((4, 5, 6), rank) for rank in (2, 3))
            >>> total = a + b
            >>> bool(torch.allclose(total.to_dense(), a.to_dense() + b.to_dense()))
            True
            >>> total.structure.ranks
            (5, 5)
        """
        if not isinstance(other, DagTensor):
            return NotImplemented
        algebra.check_sum(self.structure, other.structure)
        ranks = [a + b for a, b in zip(self.structure.ranks, other.structure.ranks, strict=True)]
        cores = (list(self.parameters()), list(other.parameters()))
        return self._like(ranks)._filled(algebra.add(self.structure, *cores))

    def __sub__(self, other: DagTensor) -> DagTensor:
        """The difference of two networks with free cores; see `__add__`."""
        return self + (-1.0) * other if isinstance(other, DagTensor) else NotImplemented

    @torch.no_grad()
    def __mul__(self, factor: complex) -> DagTensor:
        """A network with free cores times a number; a new one, like that of `__add__`.

        Example:
            >>> t = DagTensor.cp((4, 5), rank=2)
            >>> bool(torch.allclose((-3 * t).to_dense(), -3 * t.to_dense()))
            True
        """
        if not isinstance(factor, (int, float, complex)):
            return NotImplemented
        self._need_free("a multiple")
        if isinstance(factor, complex) and not self.dtype.is_complex:
            raise TypeError(f"a network of {self.dtype} has no multiple by {factor}")
        first, *rest = self.parameters()
        return self._like(self.structure.ranks)._filled([factor * first, *rest])

    __rmul__ = __mul__

    def __neg__(self) -> DagTensor:
        """A network with free cores times -1."""
        return self * -1.0

    @torch.no_grad()
    def round(self, rank: Rank | None = None, *, tol: float = 0.0) -> DagTensor:
        """Lower ranks: on a path with free cores by SVDs, elsewhere by `shrink`.

        Args:
            rank: The highest rank of the inner nodes: a number, a sequence or a mapping. None: what
                `tol` leaves.
            tol: On a path, the share of the norm that may be cut off.

        Example:
            >>> t = DagTensor.tensor_train((4, 5, 6), rank=2, dtype=torch.float64)
            >>> (t + t).round(tol=1e-9).structure.ranks
            (2, 2)
        """
        if self.structure.normalized or not self.structure.is_path:
            if rank is None or tol:
                raise ValueError("only a path with free cores is rounded by tol: give a rank")
            wanted = self._like(rank).structure.ranks
            return self.shrink(list(map(min, wanted, self.structure.ranks)))
        order = self.structure.path_order
        heads = [self.structure.ends[e][1] for e in order[:-1]]
        highest = None
        if rank is not None:
            wanted = self._like(rank).structure.ranks
            highest = [wanted[head] for head in heads if head is not None]
        cores = list(self.parameters())
        rounded = algebra.round_train(
            [cores[e].to(wide_dtype(self.dtype)) for e in order], highest, tol
        )
        ranks = dict(zip(heads, (core.shape[2] for core in rounded), strict=False))
        by_edge = dict(zip(order, rounded, strict=True))
        tensor = self._like([ranks[k] for k in range(len(self.structure.ranks))])
        return tensor._filled([by_edge[e] for e in range(len(order))])

    def _need_free(self, what: str) -> None:
        if self.structure.normalized:
            raise ValueError(f"{what} of a distribution is none: it needs free cores")

    def _like(self, rank: Rank | Sequence[int]) -> DagTensor:
        """A network like this one, at other ranks; one for each rank index, if a sequence."""
        if isinstance(rank, Sequence) and self.ties == "global":
            (rank,) = rank
        sizes = zip(self.dag.edges, self.structure.choices, strict=True)
        return DagTensor(
            self.dag,
            {edge: self.choice_names.get(edge, size) for edge, size in sizes},
            rank,
            parametrization=self.parametrization,
            ties=self.ties,
            init_scale=self.init_scale,
            dtype=self.dtype,
            device=next(self.parameters()).device,
            optimize=self.optimize,
            memory_limit=self.memory_limit,
        )

    @torch.no_grad()
    def _resized(self, rank: Rank, change: Callable[..., list[Tensor]]) -> DagTensor:
        tensor = self._like(rank)
        cores: list[Tensor] = list(self.parameters())
        if self.structure.normalized:
            cores = [torch.log_softmax(core, dim=0) for core in cores]
        for index, size in enumerate(tensor.structure.ranks):
            cores = change(self.structure, cores, index, size)
        return tensor._filled(cores)

    @torch.no_grad()
    def _filled(self, cores: Sequence[Tensor]) -> DagTensor:
        """This tensor, with its parameters set to these values."""
        for parameter, core in zip(self.parameters(), cores, strict=True):
            parameter.copy_(core.reshape(parameter.shape))
        return self

    def explore(self, path: str | os.PathLike[str], *, k: int = 100) -> None:
        """Write a page to look at this distribution: click a choice, see what the others become.

        Args:
            path: The HTML file. It needs nothing else, and no network.
            k: How many of the most probable entries it lists.

        Example:
            >>> path = getfixture("tmp_path") / "tensor.html"
            >>> DagTensor(Dag.complete(2), choices=3, rank=2).explore(path)
            >>> path.read_text()[:15]
            '<!doctype html>'
        """
        from tensus_tn.explorer.page import View, best_entries, write_page

        write_page(path, [View("", self, best_entries(self, k))])

    def _repr_html_(self) -> str:
        """A small picture, which Jupyter shows: the most probable choice of every edge."""
        from tensus_tn.explorer.svg import dag_svg

        return dag_svg(self.dag, self._edge_labels())

    def _edge_labels(self) -> dict[Edge, str]:
        sizes = zip(self.dag.edges, self.structure.choices, strict=True)
        if not self.structure.normalized:
            return {edge: f"{size} choices" for edge, size in sizes}
        labels = {}
        for edge, chances in self.marginals().items():
            best = int(chances.argmax())
            name = self.choice_names[edge][best] if edge in self.choice_names else f"choice {best}"
            labels[edge] = f"{name} {100 * chances[best].item():.0f} %"
        return labels

    def extra_repr(self) -> str:
        """What `repr` shows."""
        choices, ranks = set(self.structure.choices), set(self.structure.ranks)
        show_choices = choices.pop() if len(choices) == 1 else list(self.structure.choices)
        show_ranks = ranks.pop() if len(ranks) == 1 else list(self.structure.ranks) or 1
        return (
            f"{self.dag}, choices={show_choices}, rank={show_ranks}, "
            f"parametrization={self.parametrization!r}, ties={self.ties!r}"
        )
