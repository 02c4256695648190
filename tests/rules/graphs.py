"""Small random knowledge graphs, and models and queries on them."""

import warnings

import torch

from tensus_tn import Dag
from tensus_tn.rules import KnowledgeGraph
from tensus_tn.rules.frontier import Walker
from tensus_tn.rules.walks import KnownAnswers, both_ways, make_queries, walk_graph

DAGS = {"one": Dag.path(1), "path": Dag.path(3), "complete": Dag.complete(3)}


def random_graph(entities=9, relations=3, facts=25, *, seed=0, isolated=2, test=4):
    """With loops, several relations between two entities, and isolated entities."""
    g = torch.Generator().manual_seed(seed)
    sizes = torch.tensor([entities, relations, entities])
    rows = (torch.rand(facts + test, 3, generator=g) * sizes).long().unique(dim=0)
    rows = rows[torch.randperm(len(rows), generator=g)]
    test = min(test, len(rows) - 1)
    names = [f"e{k}" for k in range(entities + isolated)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return KnowledgeGraph.from_triples(
            rows[test:],
            test=rows[:test],
            entities=names,
            relations=[f"r{k}" for k in range(relations)],
        )


def walker(graph, dag, rank, *, dtype=torch.float64, width=1, scaling="both"):
    ends = {dag.source, dag.sink}
    ranks = [1 if node in ends else rank for node in dag.nodes]
    return Walker(walk_graph(graph, scaling, dtype), dag, ranks, width)


def random_weights(w, *, seed=0, scale=0.7):
    g = torch.Generator().manual_seed(seed)
    R2, C = 2 * w.graph.num_relations, w.graph.num_operators
    rank = dict(zip(w.dag.nodes, w.ranks, strict=True))
    dtype = w.graph.edges.value.dtype
    weights = {
        (j, k): scale * torch.randn(R2, C, rank[j], rank[k], generator=g, dtype=dtype)
        for j, k in w.dag.edges
    }
    return weights, torch.randn(R2, generator=g, dtype=dtype)


def training_queries(graph, *, own=True):
    asked = both_ways(graph.train, graph.num_relations)
    facts = torch.arange(len(graph.train)).repeat(2)
    order = asked[:, 0].argsort(stable=True)
    known = KnownAnswers(graph.train, graph.num_relations, graph.num_entities)
    return make_queries(asked[order], known, facts[order] if own else None)
