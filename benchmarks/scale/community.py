"""A graph of communities with shuffled ids, and a propagation over it, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tensus_tn import Dag, propagate_dag
from tensus_tn.distributed import DistributedGraph
from tensus_tn.propagation.relation_graph import RelationGraph

FEATURES, RANK = 64, 2
DAG = Dag.complete(3)


def community_graph(nodes: int, edges: int, communities: int = 400, seed: int = 0) -> RelationGraph:
    """Two relations and their reverses; nine of ten edges stay within a community."""
    generator = torch.Generator().manual_seed(seed)

    def draw(limit: int, count: int) -> Tensor:
        return torch.randint(limit, (count,), generator=generator)

    home = draw(communities, nodes)
    order = torch.argsort(home, stable=True)
    size = torch.bincount(home, minlength=communities)
    start = size.cumsum(0) - size
    index: dict[str, Tensor] = {}
    for name in ("A", "B"):
        target = draw(nodes, edges // 4)
        place = (torch.rand(len(target), generator=generator) * size[home[target]]).long()
        inside = torch.rand(len(target), generator=generator) < 0.9
        near = order[start[home[target]] + place]
        source = torch.where(inside, near, draw(nodes, len(target)))
        index[name] = torch.stack([source, target])
        index[f"{name} reversed"] = index[name].flip(0)
    return RelationGraph.from_edge_index(
        index, nodes, normalize="row", self_loops=True, identity=True, zero=True
    )


class Step:
    """One propagation over the whole DAG, forward and backward, in features and weights.

    Args:
        graph: All nodes, or those of a part.
        features: Of these nodes.
        rows: Which of them are wanted; all if None.
        relations: What every link may choose; all if None.
        support: Which of the features count; all if None.
    """

    def __init__(
        self,
        graph: RelationGraph | DistributedGraph,
        features: Tensor,
        rows: Tensor | None = None,
        relations: Sequence[str] | None = None,
        support: Tensor | None = None,
    ) -> None:
        generator = torch.Generator().manual_seed(1)
        rank = {v: 1 if v in (DAG.source, DAG.sink) else RANK for v in DAG.nodes}
        self.graph = graph
        self.h = features.clone().requires_grad_()
        self.weights = {
            (j, k): torch.randn(graph.num_relations, rank[j], rank[k], generator=generator)
            .div(graph.num_relations)
            .requires_grad_()
            for j, k in DAG.edges
        }
        self.rows, self.support = rows, support
        self.choices = None if relations is None else dict.fromkeys(DAG.edges, relations)
        wanted = features if rows is None else features[rows]
        self.grad = torch.ones_like(wanted).unsqueeze(1)

    def __call__(self) -> tuple[Tensor, Tensor]:
        """The result and the gradient of the features."""
        y = propagate_dag(
            self.graph,
            DAG,
            self.h,
            self.weights,
            choices=self.choices,
            rows=self.rows,
            support=self.support,
        )
        dh, *_ = torch.autograd.grad(y, [self.h, *self.weights.values()], self.grad)
        return y.detach(), dh
