"""Bodies of rules, as sequences of operators: what they weigh, and for which pairs they hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from tensus_tn.rules.model import RuleModel
from tensus_tn.rules.rule import Atom

Body = tuple[int, ...]
_ROWS = 1024  # starts that are counted at once


@torch.no_grad()
def body_weights(model: RuleModel, relation: int, bodies: Sequence[Body]) -> Tensor:
    """The weight of every body in the scores of a relation (0 .. 2R-1), in float64.

    Summed over all paths of the DAG and all places where the identity may stand: with `t` steps of
    the body done at a node, `v_k(t) = sum over j of v_j(t) W(identity) + v_j(t - 1) W(body[t - 1])`.
    """
    weights = {edge: w[relation].double().cpu() for edge, w in model.weights().items()}
    identity = model.walks.num_operators - 1
    result = torch.zeros(len(bodies), dtype=torch.float64)
    for length in {len(body) for body in bodies}:
        rows = [k for k, body in enumerate(bodies) if len(body) == length]
        ops = torch.tensor([bodies[k] for k in rows], dtype=torch.long).reshape(len(rows), length)
        at: dict[Any, list[Tensor]] = {}
        for node, rank in zip(model.dag.nodes, model._ranks(), strict=True):
            at[node] = [
                torch.zeros(len(rows), rank, dtype=torch.float64) for _ in range(length + 1)
            ]
        at[model.dag.source][0] += 1.0
        number = {node: k for k, node in enumerate(model.dag.nodes)}
        for tail, head in sorted(model.dag.edges, key=lambda edge: number[edge[1]]):
            w = weights[tail, head]
            for t in range(length + 1):
                at[head][t] += at[tail][t] @ w[identity]
                if t:
                    step = w[ops[:, t - 1]]
                    at[head][t] += (at[tail][t - 1][:, None] @ step)[:, 0]
        result[rows] = at[model.dag.sink][length][:, 0]
    return result


def inverted(op: int, num_relations: int) -> int:
    """The operator that walks back."""
    return (op + num_relations) % (2 * num_relations)


def as_atoms(body: Body, relations: Sequence[str]) -> tuple[Atom, ...]:
    """The steps of a body by name."""
    return tuple(Atom(relations[op % len(relations)], op >= len(relations)) for op in body)


class Counter:
    """Counts pairs on the training triples of a graph, exactly."""

    def __init__(self, triples: Tensor, num_entities: int, num_relations: int) -> None:
        self.shape = (num_entities, num_entities)
        head, relation, tail = triples.numpy().T
        self.matrices = []
        for r in range(num_relations):
            chosen = relation == r
            ones = np.ones(int(chosen.sum()), dtype=np.float32)
            self.matrices.append(
                sp.csr_matrix((ones, (head[chosen], tail[chosen])), shape=self.shape)
            )
        self.matrices += [matrix.T.tocsr() for matrix in self.matrices]

    def count(self, relation: int, body: Body) -> tuple[int, int, int]:
        """Pairs of the body, those that the relation holds for, those whose start has an answer."""
        truth = self.matrices[relation]
        answered = np.diff(truth.indptr) > 0
        starts = self._starts(body)
        pairs = support = pca = 0
        for rows in np.array_split(starts, max(1, len(starts) // _ROWS)):
            reached = self._pairs(rows, body)
            size = np.diff(reached.indptr)
            pairs += int(size.sum())
            pca += int(size[answered[rows]].sum())
            support += reached.multiply(truth[rows]).nnz
        return pairs, support, pca

    def _starts(self, body: Body) -> np.ndarray:
        if not body:
            return np.arange(self.shape[0])
        return np.flatnonzero(np.diff(self.matrices[body[0]].indptr))

    def _pairs(self, rows: np.ndarray, body: Body) -> Any:
        """The entities that a body leads to from some starts, as a matrix of zeros and ones."""
        ones = np.ones(len(rows), dtype=np.float32)
        reached = sp.csr_matrix((ones, (np.arange(len(rows)), rows)), (len(rows), self.shape[0]))
        for op in body:
            reached = reached @ self.matrices[op]
            reached.data[:] = 1.0
        return reached
