"""The same walks in torch.sparse, by relation or in DRUM's formulation, and in `propagate`.

Every operator is a small sparse matrix over the entities that it touches: with matrices over all
entities, most of the time would go into rows without an edge.
"""

from typing import NamedTuple

import scipy.sparse as sp
import torch

from tensus_tn import RelationGraph, propagate_dag
from tensus_tn.rules import reference


class Operator(NamedTuple):
    rows: torch.Tensor  # entities that it enters
    columns: torch.Tensor  # entities that it leaves
    matrix: torch.Tensor


def operators(graph):
    """Every operator, the identity last."""
    edges, source = graph.edges, graph.sources()
    found = []
    for i in range(graph.num_operators):
        chosen = edges.op == i
        rows, row = edges.target[chosen].long().unique(return_inverse=True)
        columns, column = source[chosen].unique(return_inverse=True)
        index, size = torch.stack([row, column]), (len(rows), len(columns))
        matrix = torch.sparse_coo_tensor(index, edges.value[chosen], size).coalesce()
        found.append(Operator(rows, columns, matrix))
    return found


def one_hot(num_entities, queries):
    start = torch.zeros(num_entities, len(queries.start))
    start[queries.start, torch.arange(len(queries.start))] = 1.0
    return start


def grouped(graph, operators, weights, queries):
    """One relation at a time, all ranks and queries of it as columns, one product for each operator.

    The own edges of queries stay in the graph: to mask them would need a matrix for each column.
    """
    scores = []
    for r in queries.relation.unique().tolist():
        mine = type(queries)(*(x[queries.relation == r] for x in queries[:4]), *queries[4:])
        h = one_hot(graph.num_entities, mine)[:, None]  # (N, P, Q)
        for w in weights.values():
            shape = (graph.num_entities, w.shape[3], h.shape[2])
            total = torch.zeros(shape).flatten(1)
            for i, a in enumerate(operators):
                mixed = torch.einsum("npc,pq->nqc", h.index_select(0, a.columns), w[r, i])
                total.index_add_(0, a.rows, a.matrix @ mixed.flatten(1))
            h = total.view(shape)
        scores.append(h[:, 0].t())
    return torch.cat(scores)


def drum(graph, operators, weights, queries):
    """Every rank apart (CP), the weight of an operator for each column: DRUM, in PyTorch.

    It takes the diagonal of the inner cores, so its scores are those of a CP model.
    """
    first, *inner, last = weights.values()
    total = 0.0
    for d in range(first.shape[3]):
        h = one_hot(graph.num_entities, queries)
        for w in (first[..., 0, d], *(w[..., d, d] for w in inner), last[..., d, 0]):
            share = w[queries.relation].t()  # (C, Q)
            after = torch.zeros_like(h)
            for a, x in zip(operators, share, strict=True):
                moved = a.matrix @ (h.index_select(0, a.columns) * x)
                after.index_add_(0, a.rows, moved)
            h = after
        total = total + h
    return total.t()


def relation_graph(graph):
    """Every operator as a relation of `propagate`, the identity last."""
    edges, source, size = graph.edges, graph.sources(), (graph.num_entities,) * 2
    found = {}
    for i in range(graph.num_operators - 1):
        chosen = edges.op == i
        index = (edges.target[chosen].long(), source[chosen])
        found[str(i)] = sp.coo_matrix((edges.value[chosen], index), size).tocsr()
    return RelationGraph.from_scipy(found, identity=True)


def dense(relations, dag, weights, queries):
    """Our `propagate` on dense columns, one for each query, their weights by groups of columns."""
    start = one_hot(relations.num_nodes, queries)
    groups, group = queries.relation.unique(return_inverse=True)
    some = {edge: w[groups] for edge, w in weights.items()}
    return propagate_dag(relations, dag, start, some, groups=group)[:, 0].t()


def loss(scores, queries):
    return reference.losses(scores, queries, True, 0.0).mean()
