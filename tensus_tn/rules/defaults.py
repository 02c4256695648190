"""Settings that depend on the graph: how long rules are, and how many queries share a frontier.

They look at how many edges walks meet on it, never at its name.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tensus_tn.dag import Dag, Edge
from tensus_tn.rules.frontier import WIDTH, Walker
from tensus_tn.rules.walks import KnownAnswers, Queries, WalkGraph, make_queries

MOST_STEPS = 4
_SAMPLE = 256
_WIDER = 0.5  # an edge of a block costs about 2 times one of a single query, for WIDTH of them


def steps(walks: WalkGraph) -> int:
    """The longest rules for which a walk meets fewer edges than the graph has, 2 to `MOST_STEPS`.

    Beyond that, a walk reaches everything on many ways at once and says little about any entity.

    Example:
        >>> from tensus_tn.rules import KnowledgeGraph
        >>> from tensus_tn.rules.walks import walk_graph
        >>> steps(walk_graph(KnowledgeGraph.from_triples([(k, 0, k + 1) for k in range(99)])))
        4
        >>> full = [(i, 0, j) for i in range(9) for j in range(9)]
        >>> steps(walk_graph(KnowledgeGraph.from_triples(full)))
        2
    """
    for length in range(2, MOST_STEPS):
        longer = Dag.path(length + 1)
        walker = Walker(walks, longer, [1] * (length + 2))
        weights = _ones(walks, longer)
        met = walker.costs(weights, _some_queries(walks)).double().mean()
        if met > len(walks.edges.target):
            return length
    return MOST_STEPS


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
