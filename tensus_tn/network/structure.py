"""What a tensor network over a DAG looks like, apart from its numbers: indices, sizes and ties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log
from typing import Any, Literal

from tensus_tn._arguments import check_size
from tensus_tn.dag import Dag, Edge, Node
from tensus_tn.network.typing import Indices

Ties = Literal["node", "global"]
Choices = int | Sequence[str] | Sequence[int] | Mapping[Edge, "int | Sequence[str]"]
Rank = int | Sequence[int] | Mapping[Node, int]


@dataclass(frozen=True)
class Structure:
    """The indices of a network: ranks `0 .. R-1`, then one choice for each edge.

    Attributes:
        dag: The graph; edges and axes have its order.
        choices: The number of choices of each edge.
        ranks: The size of each rank index: one for each inner node, or one for all of them.
        ends: The rank index of the tail and of the head of each edge; None for an end that has none
            of its own: source, sink, and the head where it shares the index of the tail.
        normalized: Whether the cores sum to one over their choices and the ranks are averaged.
        fixed: The edges, by number, whose choice is given.
        core_ranks: The rank indices of each operand, without those of size 1.
        free: The edges, by number, that are axes of the tensor.
        sizes: The size of every index: ranks, then choices.
        terms: The indices of each operand: the choice, unless it is fixed, then the ranks.
        shape: The number of choices of each free edge.
        operand_shapes: The shape of each core without the ends that have no rank of their own.
        squeezed: The edges, by number, whose cores have such an end.
        log_states: The logarithm of the number of states of all ranks.
    """

    dag: Dag
    choices: Indices
    ranks: Indices
    ends: tuple[tuple[int | None, int | None], ...]
    normalized: bool
    fixed: frozenset[int] = frozenset()

    # Derived from the above, once: a query of one entry has no time to do it again.
    core_ranks: tuple[Indices, ...] = field(init=False, repr=False, compare=False)
    free: Indices = field(init=False, repr=False, compare=False)
    sizes: Indices = field(init=False, repr=False, compare=False)
    terms: tuple[Indices, ...] = field(init=False, repr=False, compare=False)
    shape: Indices = field(init=False, repr=False, compare=False)
    operand_shapes: tuple[Indices, ...] = field(init=False, repr=False, compare=False)
    squeezed: Indices = field(init=False, repr=False, compare=False)
    log_states: float = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        core_ranks = tuple(
            tuple(r for r in ends if r is not None and self.ranks[r] > 1) for ends in self.ends
        )
        cores = list(enumerate(core_ranks))
        free = tuple(e for e, _ in cores if e not in self.fixed)
        derived = {
            "core_ranks": core_ranks,
            "free": free,
            "shape": tuple(self.choices[e] for e in free),
            "sizes": self.ranks + self.choices,
            "terms": tuple(r if e in self.fixed else (self.choice(e), *r) for e, r in cores),
            "operand_shapes": tuple(
                (self.choices[e], *(self.ranks[i] for i in r)) for e, r in cores
            ),
            "squeezed": tuple(e for e, r in cores if len(r) < 2),
            "log_states": sum(map(log, self.ranks)),
            "_hash": hash(
                (self.dag, self.choices, self.ranks, self.ends, self.normalized, self.fixed)
            ),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        # Made anew: a hash is worth nothing in another process.
        fields = (self.dag, self.choices, self.ranks, self.ends, self.normalized, self.fixed)
        return type(self), fields

    def choice(self, edge: int) -> int:
        """The index of the choice of an edge."""
        return len(self.ranks) + edge

    def core_shape(self, edge: int) -> tuple[int, int, int]:
        """The shape `(C_e, d_j, d_k)` of a core, 1 for an end without a rank of its own."""
        tail, head = (1 if r is None else self.ranks[r] for r in self.ends[edge])
        return (self.choices[edge], tail, head)

    @property
    def is_path(self) -> bool:
        """Whether the graph is a path, each inner node with a rank index of its own."""
        # Every node but the source has an edge in: if that is all there are, none has two, in or out.
        return len(self.ends) == len(self.dag.nodes) - 1 and len(self.ranks) == len(self.dag.inner)

    @property
    def path_order(self) -> Indices:
        """The edges of a path, by number, from source to sink."""
        place = {node: k for k, node in enumerate(self.dag.nodes)}
        return tuple(sorted(range(len(self.ends)), key=lambda e: place[self.dag.edges[e][0]]))

    def log_states_of(self, used: Sequence[int]) -> float:
        """The logarithm of the number of states of the ranks that these operands touch."""
        touched = {r for e in used for r in self.core_ranks[e]}
        return sum(log(self.ranks[r]) for r in touched)

    def fix(self, edges: frozenset[int]) -> Structure:
        """The same network with the choices of some more edges given."""
        return replace(self, fixed=self.fixed | edges)


def make_structure(
    dag: Dag, choices: Mapping[Edge, int], rank: Rank, ties: Ties, normalized: bool
) -> Structure:
    """Number the indices of a network, after checking the ranks.

    Example:
        >>> s = make_structure(Dag.path(2), {(0, 1): 3, (1, 2): 4}, 2, "node", normalized=True)
        >>> s.terms, s.sizes
        (((1, 0), (2, 0)), (2, 3, 4))
    """
    if ties not in ("node", "global"):
        raise ValueError(f"ties must be 'node' or 'global', got {ties!r}")
    by_node = _ranks(dag, rank)
    if ties == "global" and len(set(by_node.values())) > 1:
        raise ValueError(f"global ties need one rank for all inner nodes, got {by_node}")
    number = {node: 0 if ties == "global" else k for k, node in enumerate(dag.inner)}
    pairs = [(number.get(tail), number.get(head)) for tail, head in dag.edges]
    ends = tuple((tail, None if head == tail else head) for tail, head in pairs)
    ranks = tuple(by_node.values())[: 1 if ties == "global" else None]
    return Structure(dag, tuple(choices.values()), ranks, ends, normalized)


def _ranks(dag: Dag, rank: Rank) -> dict[Node, int]:
    if isinstance(rank, Mapping):
        _check_keys("rank", "inner node", rank, dag.inner)
        return {v: check_size(f"the rank of node {v!r}", rank[v]) for v in dag.inner}
    if isinstance(rank, Sequence) and not isinstance(rank, str):
        inner = list(rank)
        if len(inner) == len(dag.inner) + 2 and inner[0] == inner[-1] == 1:
            inner = inner[1:-1]  # as TensorLy writes it, source and sink with a rank of 1
        if len(inner) != len(dag.inner):
            raise ValueError(
                f"rank has {len(rank)} numbers for {len(dag.inner)} inner nodes: {rank}"
            )
        return _ranks(dag, dict(zip(dag.inner, inner, strict=True)))
    return dict.fromkeys(dag.inner, check_size("rank", rank))


def edge_choices(dag: Dag, choices: Choices) -> tuple[dict[Edge, int], dict[Edge, tuple[str, ...]]]:
    """The number of choices of every edge, and the names of those that were named."""
    if isinstance(choices, Sequence) and choices and not any(isinstance(c, str) for c in choices):
        if len(choices) != len(dag.edges):
            raise ValueError(
                f"choices has {len(choices)} sizes for {len(dag.edges)} edges, or no names: {choices}"
            )
        choices = dict(zip(dag.edges, choices, strict=True))
    if isinstance(choices, Mapping):
        _check_keys("choices", "edge", choices, dag.edges)
    sizes: dict[Edge, int] = {}
    names: dict[Edge, tuple[str, ...]] = {}
    for edge in dag.edges:
        given = choices[edge] if isinstance(choices, Mapping) else choices
        if isinstance(given, Sequence) and not isinstance(given, str):
            names[edge] = tuple(name for name in given if isinstance(name, str))
            if len(set(names[edge])) < len(given):
                raise ValueError(
                    f"the choices of edge {edge!r} must be distinct names, got {given!r}"
                )
            given = len(given)
        sizes[edge] = check_size(f"the number of choices of edge {edge!r}", given)
    return sizes, names


def _check_keys(name: str, kind: str, given: Mapping[Any, Any], expected: Sequence[Any]) -> None:
    for key in given:
        if key not in expected:
            raise ValueError(f"{name} names {key!r}, which is no {kind} of the Dag {expected}")
    for key in expected:
        if key not in given:
            raise ValueError(f"{name} has nothing for {kind} {key!r}")
