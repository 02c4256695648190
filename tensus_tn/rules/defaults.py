"""Settings that depend on the graph: how long rules are, how many queries share a frontier, and more.

They look at how many edges walks meet on it, never at its name.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tensus_tn.dag import Dag, Edge
from tensus_tn.rules.frontier import WIDTH, Walker
from tensus_tn.rules.walks import KnownAnswers, Queries, WalkGraph, make_queries

_SAMPLE = 256
_FEW = 0.05  # of all edges: what walks of four links may meet
_MANY = 2_000_000  # edges: what walks of three links may meet
_AFFORDABLE = 9.2e9  # edges that all walks of a training may meet
_WIDER = 0.3  # an edge of a block costs about 3 times one of a single query, for WIDTH of them


def steps(walks: WalkGraph) -> int:
    """How long rules are: 3; 4 where walks stay small, 2 where they cost too much.

    A walk of four links should meet less than a twentieth of all edges: if it meets more, it reaches
    much on many ways at once and says little about any entity.

    Example:
        >>> from tensus_tn.rules import KnowledgeGraph
        >>> from tensus_tn.rules.walks import walk_graph
        >>> steps(walk_graph(KnowledgeGraph.from_triples([(k, 0, k + 1) for k in range(999)])))
        4
        >>> full = [(i, 0, j) for i in range(9) for j in range(9)]
        >>> steps(walk_graph(KnowledgeGraph.from_triples(full)))
        3
    """
    if _edges_met(walks, 4) < _FEW * len(walks.edges.target):
        return 4
    return 3 if _edges_met(walks, 3) < _MANY else 2


def _edges_met(walks: WalkGraph, length: int) -> float:
    """By a walk along a path, in all its links, on average."""
    path = Dag.path(length)
    walker = Walker(walks, path, [1] * (length + 1))
    return float(walker.costs(_ones(walks, path), _some_queries(walks)).double().mean())


def width(walker: Walker, weights: dict[Edge, Tensor]) -> int:
    """How many queries of one relation should share a frontier: 1, or `WIDTH`.

    Where they reach the same entities, one pass over the edges serves all of them; where they do not,
    the shared frontier is as large as all of theirs together.
    """
    queries = _some_queries(walker.graph)
    alone, shared = (
        Walker(walker.graph, walker.dag, walker.ranks, width).costs(weights, queries)
        for width in (1, WIDTH)
    )
    return WIDTH if int(shared.sum()) < _WIDER * WIDTH * int(alone.sum()) else 1


def affordable(walker: Walker, weights: dict[Edge, Tensor]) -> int:
    """How many queries training may ask, to two digits: their walks meet some 9 billion edges.

    That is about seven minutes of one core. Where a walk meets most of a large graph, a part of its
    training triples says nearly as much as all of them.
    """
    edges = walker.costs(weights, _some_queries(walker.graph)).double().mean() / walker.width
    count = _AFFORDABLE / max(float(edges), 1.0)
    digit = int(10 ** max(len(str(int(count))) - 2, 0))
    return max(round(count / digit), 1) * digit


def _ones(walks: WalkGraph, dag: Dag) -> dict[Edge, Tensor]:
    one = torch.ones(2 * walks.num_relations, walks.num_operators, 1, 1)
    return dict.fromkeys(dag.edges, one.to(walks.edges.value.dtype))


def _some_queries(walks: WalkGraph) -> Queries:
    """Queries of the graph's facts: blocks of some relations, evenly spread."""
    op, fact = walks.edges.op.long(), walks.edges.fact
    edges = torch.arange(len(op))[fact >= 0]
    edges = edges[torch.randperm(len(edges), generator=torch.Generator().manual_seed(0))]
    edges = edges[op[edges].argsort(stable=True)]
    whole = len(edges) // WIDTH * WIDTH
    blocks = edges[:whole].view(-1, WIDTH) if whole else edges[None]
    spread = torch.linspace(0, len(blocks) - 1, min(len(blocks), _SAMPLE // WIDTH)).long()
    chosen = blocks[spread].flatten()
    rows = torch.stack([op[chosen], walks.sources()[chosen], walks.edges.target[chosen].long()], 1)
    none = KnownAnswers(rows[:0], walks.num_relations, walks.num_entities)
    return make_queries(rows, none)
