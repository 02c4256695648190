"""Propagation with one relation a link."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from tensus_tn.dag import Dag, Edge, Node
from tensus_tn.nn.schema import ZERO
from tensus_tn.propagation.functional import propagate_dag
from tensus_tn.propagation.relation_graph import RelationGraph


def follow(
    graph: RelationGraph,
    dag: Dag,
    h: Tensor,
    relations: Mapping[Edge, str],
    weights: Mapping[Edge, Tensor],
) -> Tensor:
    """The state (N, F) of the sink: ``H_k = sum_{j -> k} w_jk A^(i_jk) H_j``, ``H_0 = h`` (N, F).

    It is differentiable in `h` and the scalar weights. A link of relation zero is none.
    """
    edges = [edge for _, links in useful_links(dag, relations) for edge in links]
    if not edges:
        return torch.zeros_like(h)
    chosen = [graph.relation_index(relations[edge]) for edge in edges]
    one_hot = F.one_hot(torch.tensor(chosen, device=h.device), graph.num_relations)
    cores = one_hot * torch.stack([weights[edge] for edge in edges])[:, None]
    return propagate_dag(
        graph,
        Dag(edges),
        h,
        dict(zip(edges, cores[:, :, None, None], strict=True)),
        choices={edge: [relations[edge]] for edge in edges},
    ).squeeze(1)


def useful_links(dag: Dag, relations: Mapping[Edge, str]) -> Iterator[tuple[Node, list[Edge]]]:
    """The nodes between source and sink that non-zero links join, each with those into it."""
    links = [edge for edge in dag.edges if relations[edge] != ZERO]
    reached, wanted = {dag.source}, {dag.sink}
    for node in dag.nodes:
        if any(k == node and j in reached for j, k in links):
            reached.add(node)
    for node in reversed(dag.nodes):
        if any(j == node and k in wanted for j, k in links):
            wanted.add(node)
    for node in dag.nodes:
        if node in reached & wanted and node != dag.source:
            yield node, [edge for edge in links if edge[1] == node and edge[0] in reached]
