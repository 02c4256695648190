"""What a distribution over meta-graphs has learned: its best meta-graphs and meta-paths."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import product

from tensus_tn._arguments import check_size
from tensus_tn.dag import Dag, Edge
from tensus_tn.network.queries import Queries
from tensus_tn.nn.meta_graph import MetaGraph, MetaPath, Word, paths_that_join
from tensus_tn.nn.schema import IDENTITY, ZERO, EdgeType


def meta_graphs(tensor: Queries, k: int, edge_types: Mapping[str, EdgeType]) -> list[MetaGraph]:
    """The `k` most probable meta-graphs of a tensor with named choices, best first."""
    best = tensor.top_k(k)
    if not best.exact:
        warnings.warn(
            f"not proven to be the best meta-graphs: another may be more probable by {best.gap:.1e} "
            "(the distribution is almost flat; see DagTensor.top_k)",
            stacklevel=3,
        )
    marginals = {edge: p.tolist() for edge, p in tensor.marginals().items()}
    found = []
    for index, probability in zip(best.index.tolist(), best.value.tolist(), strict=True):
        choice = dict(zip(tensor.edges, index, strict=True))
        relations = {edge: tensor.choice_names[edge][i] for edge, i in choice.items()}
        weights = {edge: marginals[edge][i] for edge, i in choice.items()}
        found.append(MetaGraph(tensor.dag, relations, weights, edge_types, probability))
    return found


def meta_paths(tensor: Queries, k: int, edge_types: Mapping[str, EdgeType]) -> list[MetaPath]:
    """The `k` meta-paths with the largest expected number of ways that spell them, best first.

    A product of relations has a coefficient in the expected propagation: the sum, over all paths of
    the DAG, of the probability that the links of the path choose these relations.
    """
    check_size("k", k)
    total: Counter[Word] = Counter()
    for links in _dag_paths(tensor.dag):
        probability = tensor.marginal(links)
        names = [tensor.choice_names[edge] for edge in links]
        for choice, p in zip(product(*names), probability.flatten().tolist(), strict=True):
            if ZERO not in choice:
                total[tuple(name for name in choice if name != IDENTITY)] += p
    paths = paths_that_join(total, edge_types)
    return sorted(paths, key=lambda path: -path.weight)[:k]


def _dag_paths(dag: Dag) -> Iterator[tuple[Edge, ...]]:
    """All paths from source to sink, as links."""
    waiting: list[tuple[Edge, ...]] = [(e,) for e in dag.edges if e[0] == dag.source]
    while waiting:
        path = waiting.pop()
        if path[-1][1] == dag.sink:
            yield path
        waiting += [(*path, edge) for edge in dag.edges if edge[0] == path[-1][1]]
