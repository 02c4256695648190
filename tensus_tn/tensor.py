"""DagTensor: a tensor with one axis for each edge of a DAG, held as a network of small cores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from tensus_tn.dag import Dag, Edge
from tensus_tn.plan import Optimize
from tensus_tn.queries import Choice, Index, Queries
from tensus_tn.structure import (
    Choices,
    Rank,
    Structure,
    Ties,
    edge_choices,
    make_structure,
)

Parametrization = Literal["softmax", "free"]


class DagTensor(nn.Module, Queries):
    r"""A tensor of order ``M``, one axis for each edge of a DAG, as a network of cores.

    Every inner node ``v`` carries a rank index ``r_v``, every edge ``e = (j, k)`` a core ``W_e`` of
    shape ``(C_e, d_j, d_k)``, with size 1 for an end that has no rank (source and sink):

    .. math::
        T(i_1, \dots, i_M) = \frac{1}{Z} \sum_r \prod_e W_e(i_e, r_j, r_k)

    With ``softmax`` cores, ``W_e(:, a, b) = softmax(B_e(:, a, b))`` and ``Z = prod_v d_v``, the tensor
    is a probability distribution (Proposition 1 of the paper). With ``free`` cores, ``W_e`` is any
    real tensor and ``Z = 1``: the plain structured decomposition. A path is the tensor train, rank 1
    the rank-one product, and one rank index shared by all nodes (``ties="global"``) is CP.

    Args:
        dag: The graph.
        choices: How many choices the edges have: a number, a sequence of names, or a mapping from
            every edge to one of these.
        rank: The rank of the inner nodes: a number, or a mapping from every inner node.
        parametrization: ``"softmax"`` or ``"free"``.
        ties: ``"node"``, a rank index for each inner node, or ``"global"``, one for all of them.
        init_scale: The standard deviation of the logits (``softmax``) or, about, of the entries
            (``free``).
        dtype: Of the parameters; torch's default when None.
        device: Of the parameters.
        generator: For the initial values.
        optimize: How to find contraction paths; passed to opt_einsum, so also a cotengra optimizer.
        memory_limit: Bytes that one tensor of a query may take. Larger batches are cut into pieces,
            larger contractions sliced; what does not fit even so is refused with its size.

    Example:
        >>> t = DagTensor(Dag([(0, 1), (1, 2), (0, 2)]), choices=["AP", "PA", "I"], rank=2)
        >>> t.shape, t.ndim, t.num_parameters
        (torch.Size([3, 3, 3]), 3, 15)
        >>> round(float(t.to_dense().sum()), 4)
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
        sizes, self.choice_names = edge_choices(dag, choices)
        self.structure = make_structure(
            dag, sizes, rank, ties, normalized=parametrization == "softmax"
        )
        self.init_scale, self.optimize, self.memory_limit = init_scale, optimize, memory_limit
        for e in range(len(dag.edges)):
            core = torch.empty(self.structure.core_shape(e), dtype=dtype, device=device)
            self.register_parameter(f"core_{e}", nn.Parameter(core))
        self.reset_parameters(generator)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw new initial values.

        Example:
            >>> t = DagTensor(Dag.path(2), choices=3, rank=2)
            >>> t.reset_parameters(torch.Generator().manual_seed(0))
        """
        scale = self.init_scale
        if not self.structure.normalized:
            # An entry is a sum of Z products of M cores: this gives it the standard deviation asked.
            num_cores = len(self.structure.terms)
            scale = (
                scale ** (1 / num_cores)
                * torch.tensor(-self.structure.log_states).div(2 * num_cores).exp().item()
            )
        for core in self.parameters():
            nn.init.normal_(core, std=scale, generator=generator)

    @property
    def parametrization(self) -> Parametrization:
        """``"softmax"`` or ``"free"``."""
        return "softmax" if self.structure.normalized else "free"

    @property
    def ties(self) -> Ties:
        """``"global"`` where one rank index is shared by several nodes, otherwise ``"node"``."""
        return "node" if len(self.structure.ranks) == len(self.dag.inner) else "global"

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the cores."""
        return next(self.parameters()).dtype

    @property
    def num_parameters(self) -> int:
        """The number of elements of all cores."""
        return sum(core.numel() for core in self.parameters())

    def forward(self, index: Index) -> Tensor:
        """The entries at ``index``, as ``t[index]``."""
        return self[index]

    def cores(self) -> dict[Edge, Tensor]:
        """The cores ``{edge: W_e}`` of shape ``(C_e, d_j, d_k)``, normalised and differentiable.

        Example:
            >>> core = DagTensor(Dag.path(2), choices=3, rank=2).cores()[1, 2]
            >>> core.shape, bool(torch.allclose(core.sum(0), torch.ones(2, 1)))
            (torch.Size([3, 2, 1]), True)
        """
        raw = self._parameters.values()
        if self.structure.normalized:
            raw = [torch.softmax(logits, dim=0) for logits in raw]
        return dict(zip(self.dag.edges, raw, strict=True))

    def operands(self, *, log: bool = False) -> list[Tensor]:
        """One tensor for each edge, with the indices of ``structure.terms``."""
        raw = self._parameters.values()
        if self.structure.normalized:
            normalize = torch.log_softmax if log else torch.softmax
            raw = [normalize(logits, dim=0) for logits in raw]
        return [x.reshape(s) for x, s in zip(raw, self.structure.operand_shapes, strict=True)]

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

    def extra_repr(self) -> str:
        """What ``repr`` shows."""
        choices, ranks = set(self.structure.choices), set(self.structure.ranks)
        show_choices = choices.pop() if len(choices) == 1 else list(self.structure.choices)
        show_ranks = ranks.pop() if len(ranks) == 1 else list(self.structure.ranks) or 1
        return (
            f"{self.dag}, choices={show_choices}, rank={show_ranks}, "
            f"parametrization={self.parametrization!r}, ties={self.ties!r}"
        )


class Conditional(Queries):
    """A :class:`DagTensor` with the choices of some edges fixed; it answers the same queries.

    It holds the tensor itself, not its values: when the parameters change, so does the conditional.
    """

    def __init__(self, tensor: DagTensor, fixed: dict[int, int]) -> None:
        self.tensor, self.fixed = tensor, fixed
        self.structure: Structure = tensor.structure.fix(frozenset(fixed))
        self.choice_names = tensor.choice_names
        self.optimize, self.memory_limit = tensor.optimize, tensor.memory_limit
        if not self.structure.free:
            raise ValueError("a condition must leave at least one edge free")

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the cores."""
        return self.tensor.dtype

    def operands(self, *, log: bool = False) -> list[Tensor]:
        """One tensor for each edge, with the indices of ``structure.terms``."""
        operands = self.tensor.operands(log=log)
        for e, choice in self.fixed.items():
            operands[e] = operands[e][choice]
        return operands

    def condition(self, choices: Mapping[Edge, Choice]) -> Conditional:
        """Fix the choices of some more edges."""
        return Conditional(self.tensor, self.fixed | self._fixed_choices(choices))

    def __repr__(self) -> str:
        fixed = {self.dag.edges[e]: choice for e, choice in self.fixed.items()}
        return f"{self.tensor!r}.condition({fixed})"
