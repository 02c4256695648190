"""Propagation with one relation a link: what is not chosen costs nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor

from tensus_tn._segments import Segments
from tensus_tn.dag import Dag, Edge, Node
from tensus_tn.nn.schema import ZERO
from tensus_tn.propagate import propagate_dag
from tensus_tn.relations import RelationGraph

#: Parts of graphs, as long as the whole graph lives (neither changes); at most so many of each.
_PARTS: WeakKeyDictionary[RelationGraph, dict[tuple[str, ...], RelationGraph]] = WeakKeyDictionary()
_MAX_PARTS = 8


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
    used = tuple(name for name in graph.relation_names if name in {relations[e] for e in edges})
    # To make a part takes as long as it saves in a few passes: only where it is small, and
    # so likely to be met again.
    part = select(graph, used) if 2 * len(used) <= graph.num_relations else graph
    used = part.relation_names
    chosen = torch.tensor([used.index(relations[edge]) for edge in edges], device=h.device)
    values = torch.stack([weights[edge] for edge in edges])
    cores = (F.one_hot(chosen, len(used)) * values[:, None]).reshape(len(edges), -1, 1, 1)
    return propagate_dag(part, Dag(edges), h, dict(zip(edges, cores, strict=True))).squeeze(1)


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


def select(graph: RelationGraph, relations: tuple[str, ...]) -> RelationGraph:
    """The graph of some relations, named in the graph's order."""
    if relations == graph.relation_names:
        return graph
    values = graph.forward.edge_val
    if values is not None and values.requires_grad:
        return _select(graph, relations)  # each backward pass needs a selection of its own
    parts = _PARTS.setdefault(graph, {})
    if relations not in parts:
        if len(parts) >= _MAX_PARTS:
            del parts[next(iter(parts))]
        with torch.inference_mode(False):  # a later backward pass may need the part as well
            parts[relations] = _select(graph, relations)
    return parts[relations]


def _select(graph: RelationGraph, relations: Sequence[str]) -> RelationGraph:
    kept = [graph.relation_index(name) for name in relations]
    number = torch.full((graph.num_relations,), -1, dtype=torch.int32, device=graph.device)
    number[kept] = torch.arange(len(kept), dtype=torch.int32, device=graph.device)
    forward, edges = _select_segments(graph.forward, number)
    backward, edges_back = _select_segments(graph.backward, number)
    perm = graph.backward.edge_perm
    assert perm is not None
    place = edges.cumsum(0) - 1  # of a forward edge among those that are kept
    backward = replace(backward, edge_perm=place[perm[edges_back].long()].to(perm.dtype))
    return replace(
        graph,
        forward=forward,
        backward=backward,
        loop=graph.loop[kept],
        relation_names=tuple(relations),
    )


def _select_segments(segments: Segments, number: Tensor) -> tuple[Segments, Tensor]:
    """The segments of the relations that have a new number, and which edges (E,) they hold."""
    relation = number[segments.seg_rel.long()]
    mine = relation >= 0
    edges = mine[segments.edge_seg()]
    dtype = segments.row_ptr.dtype

    def starts(counts: Tensor) -> Tensor:
        return torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(dtype)

    def part(values: Tensor | None, kept: Tensor) -> Tensor | None:
        return None if values is None else values[kept]

    selected = Segments(
        row_ptr=starts(torch.bincount(segments.seg_row()[mine], minlength=segments.num_rows)),
        seg_rel=relation[mine],
        seg_ptr=starts(segments.seg_ptr.diff()[mine]),
        col=segments.col[edges],
        seg_val=part(segments.seg_val, mine),
        edge_val=part(segments.edge_val, edges),
        seg_loop=part(segments.seg_loop, mine),
    )
    return selected, edges
