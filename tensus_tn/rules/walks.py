"""What walks go along: the facts of a graph as edges, and the queries that start on them.

Operators are the relations `0 .. R-1`, their inverses `R .. 2R-1`, and the identity `2R`. A query has
one of the first `2R` as its relation, so that `(r + R, tail)` asks for the head of a triple.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from tensus_tn.rules.knowledge_graph import KnowledgeGraph

Scaling = Literal["none", "sqrt", "both"]


class FactEdges(NamedTuple):
    """Every fact as two edges, there and back, and an edge from every entity to itself.

    The edges that leave entity `u` are `ptr[u] .. ptr[u + 1]`. Those of one operator are a run, and
    short runs come first: loops over runs of one length after the other are faster.
    """

    ptr: Tensor  # (N + 1,)
    target: Tensor  # (E,), int32
    op: Tensor  # (E,), int32
    fact: Tensor  # (E,), int32: the number of the triple, -1 for the identity
    value: Tensor  # (E,)


class Popular(NamedTuple):
    """The answers of relation `r`, `entity[ptr[r]] ..`, and to how many facts each is the answer."""

    ptr: Tensor  # (2R + 1,)
    entity: Tensor  # int32
    times: Tensor  # int32


class Queries(NamedTuple):
    """Queries `(relation, start)` with an answer, sorted by relation.

    Known answers do not compete with the answer; `own` is the fact behind a query, or -1.
    """

    relation: Tensor  # (Q,)
    start: Tensor  # (Q,)
    answer: Tensor  # (Q,)
    own: Tensor  # (Q,)
    known_ptr: Tensor  # (Q + 1,)
    known: Tensor


@dataclass(frozen=True, eq=False)
class WalkGraph:
    """A graph for walks: its edges, and the popular answers of its relations."""

    num_relations: int
    edges: FactEdges
    popular: Popular

    @property
    def num_entities(self) -> int:
        """How many entities there are."""
        return len(self.edges.ptr) - 1

    @property
    def num_operators(self) -> int:
        """Relations, inverses and the identity."""
        return 2 * self.num_relations + 1

    def sources(self) -> Tensor:
        """The entity that every edge leaves, (E,)."""
        return torch.repeat_interleave(torch.arange(self.num_entities), self.edges.ptr.diff())


def walk_graph(
    graph: KnowledgeGraph, scaling: Scaling = "both", dtype: torch.dtype = torch.float32
) -> WalkGraph:
    """The training triples of a graph as edges.

    Args:
        graph: The graph.
        scaling: The value of an edge: 1 (`"none"`), `1 / sqrt(n)` with `n` edges of its operator that
            leave the same entity (`"sqrt"`), or `1 / sqrt(n m)` with `m` that enter the same one
            (`"both"`). So a walk through a hub counts less.
        dtype: Of the values.

    Example:
        >>> g = walk_graph(KnowledgeGraph.from_triples([("a", "r", "b"), ("a", "r", "c")]))
        >>> g.edges.ptr.tolist(), g.edges.target.tolist()
        ([0, 3, 5, 7], [0, 1, 2, 0, 1, 0, 2])
        >>> g.popular.times.tolist()  # r has the answers b and c, its inverse twice a
        [1, 1, 2]
    """
    if scaling not in get_args(Scaling):
        raise ValueError(f"scaling must be one of {get_args(Scaling)}, got {scaling!r}")
    N, R = graph.num_entities, graph.num_relations
    head, relation, tail = graph.train.T
    identity, facts = torch.arange(N), torch.arange(len(head))
    source = torch.cat([head, tail, identity])
    target = torch.cat([tail, head, identity])
    op = torch.cat([relation, relation + R, torch.full((N,), 2 * R)])
    fact = torch.cat([facts, facts, torch.full((N,), -1)])
    value = torch.ones(len(source), dtype=torch.float64)
    C = 2 * R + 1
    length = _repeats(source * C + op)  # of the run
    if scaling != "none":
        value /= length.sqrt()
    if scaling == "both":
        value /= _repeats(target * C + op).sqrt()
    order = torch.from_numpy(np.lexsort((target, op, length, source)))
    ptr = torch.cat([torch.zeros(1, dtype=torch.long), source.bincount(minlength=N).cumsum(0)])
    target, op, fact = (x[order].int() for x in (target, op, fact))
    edges = FactEdges(ptr, target, op, fact, value[order].to(dtype))
    return WalkGraph(R, edges, _popular(graph))


def _popular(graph: KnowledgeGraph) -> Popular:
    N, R = graph.num_entities, graph.num_relations
    asked = both_ways(graph.train, R)
    pair, count = (asked[:, 0] * N + asked[:, 2]).unique(return_counts=True)
    ptr = torch.searchsorted(pair, torch.arange(2 * R + 1) * N)
    return Popular(ptr, (pair % N).int(), count.int())


def both_ways(triples: Tensor, num_relations: int) -> Tensor:
    """Queries `(relation, start, answer)`, (2n, 3): every triple asked from both ends.

    Example:
        >>> both_ways(torch.tensor([[7, 0, 8]]), num_relations=2).tolist()
        [[0, 7, 8], [2, 8, 7]]
    """
    head, relation, tail = triples.T
    there = torch.stack([relation, head, tail], dim=1)
    return torch.cat([there, torch.stack([relation + num_relations, tail, head], dim=1)])


class KnownAnswers:
    """The answers of every query `(relation, start)` in some triples.

    Example:
        >>> known = KnownAnswers(torch.tensor([[0, 0, 1], [0, 0, 2]]), num_relations=1, num_entities=3)
        >>> known.of(torch.tensor([0, 1]), torch.tensor([0, 1]))
        (tensor([0, 2, 3]), tensor([1, 2, 0]))
    """

    def __init__(self, triples: Tensor, num_relations: int, num_entities: int) -> None:
        self.num_entities = num_entities
        relation, start, answer = both_ways(triples, num_relations).T
        pairs = ((relation * num_entities + start) * num_entities + answer).unique()
        self.answer = pairs % num_entities
        self.query, count = (pairs // num_entities).unique_consecutive(return_counts=True)
        self.ptr = torch.cat([count.new_zeros(1), count.cumsum(0)])

    def of(self, relation: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        """Pointers (Q + 1,) into the known answers of some queries, and these."""
        wanted = relation * self.num_entities + start
        if not len(self.query):
            return wanted.new_zeros(len(wanted) + 1), wanted.new_zeros(0)
        at = torch.searchsorted(self.query, wanted).clamp_max(len(self.query) - 1)
        size = torch.where(self.query[at] == wanted, self.ptr[at + 1] - self.ptr[at], 0)
        ptr = torch.cat([size.new_zeros(1), size.cumsum(0)])
        within = torch.arange(int(ptr[-1])) - torch.repeat_interleave(ptr[:-1], size)
        return ptr, self.answer[torch.repeat_interleave(self.ptr[at], size) + within]


def make_queries(asked: Tensor, known: KnownAnswers, own: Tensor | None = None) -> Queries:
    """Queries from rows `(relation, start, answer)`, (Q, 3), sorted by relation."""
    relation, start, answer = (column.contiguous() for column in asked.T)
    if own is None:
        own = torch.full_like(relation, -1)
    return Queries(relation, start, answer, own.contiguous(), *known.of(relation, start))


def _repeats(keys: Tensor) -> Tensor:
    """How often every key occurs, at every key."""
    _, where, count = keys.unique(return_inverse=True, return_counts=True)
    repeats: Tensor = count[where].double()
    return repeats
