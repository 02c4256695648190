"""Graphs of PyG and DGL as a RelationGraph with the relations of a schema.

Both are read by their attributes; neither is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tensus_tn.nn.schema import Schema
from tensus_tn.propagation.assembly import Normalize
from tensus_tn.propagation.edge_lists import dgl_parts, hetero_data_parts
from tensus_tn.propagation.node_ids import RelationKey, relation_name
from tensus_tn.propagation.relation_graph import RelationGraph


def features_and_graph(x: Any, graph: Any) -> tuple[Any, Any]:
    """Both as they are, or those of `x` where it is a `HeteroData` and has both."""
    return (x.x_dict, x) if graph is None and _is_hetero_data(x) else (x, graph)


def to_relation_graph(
    edges: Any,
    num_nodes: Mapping[str, int] | None,
    schema: Schema,
    *,
    normalize: Normalize = "row",
    self_loops: bool = True,
    dtype: torch.dtype | None = None,
) -> RelationGraph:
    """A graph in any form that a layer takes, with the relations and node types of a schema, in order.

    Types that it lacks, as a mini-batch may, have no nodes or no edges.

    Args:
        edges: A `HeteroData`, a DGL graph, or an `edge_index_dict` with `num_nodes`.
        num_nodes: The number of nodes of every type, for an `edge_index_dict`.
        schema: Its relations, with the identity and zero, are those of the result.
        normalize: As for `RelationGraph`.
        self_loops: As for `RelationGraph`.
        dtype: As for `RelationGraph`.
    """
    index, counts, weight = _parts(edges, num_nodes)
    names = _check_types(index, counts, schema)
    none = torch.empty(2, 0, dtype=torch.int64)
    relations: dict[RelationKey, Tensor] = {
        schema.edge_types[name]: index[names[name]] if name in names else none
        for name in schema.names
    }
    return RelationGraph.from_edge_index(
        relations,
        {kind: counts.get(kind, 0) for kind in schema.node_types},
        edge_weight=weight,
        normalize=normalize,
        self_loops=self_loops,
        identity=True,
        zero=True,
        dtype=dtype,
    )


def dgl_metadata(graph: Any) -> tuple[list[str], list[tuple[str, str, str]]]:
    """The node types and edge types of a DGL heterograph, as `MetaGraphConv` takes them."""
    return list(graph.ntypes), list(graph.canonical_etypes)


def _parts(
    edges: Any, num_nodes: Mapping[str, int] | None
) -> tuple[Mapping[Any, Tensor], Mapping[str, int], Mapping[RelationKey, Tensor] | None]:
    """Edges, numbers of nodes and weights, by type."""
    if hasattr(edges, "canonical_etypes") and hasattr(edges, "ntypes"):
        return *dgl_parts(edges), None
    if _is_hetero_data(edges):
        return hetero_data_parts(edges)
    if isinstance(edges, Mapping) and num_nodes is not None:
        return edges, num_nodes, None
    raise TypeError(
        "expected a RelationGraph, a HeteroData, a DGL graph, or an edge_index_dict with "
        f"the numbers of nodes, got {type(edges).__name__}"
    )


def _is_hetero_data(data: Any) -> bool:
    """Whether this looks like a `HeteroData`, or a batch of it."""
    return hasattr(data, "metadata") and hasattr(data, "edge_types")


def _check_types(
    index: Mapping[Any, Tensor], counts: Mapping[str, int], schema: Schema
) -> dict[str, Any]:
    """The edge types by the names of their relations, all of them known to the schema."""
    if not schema.node_types:
        raise ValueError(
            "give metadata as (node_types, edge_types) for a layer over edge_index_dict"
        )
    names = {relation_name(kind): kind for kind in index}
    for what, given, known in (
        ("edge types", names, schema.names),
        ("node types", counts, schema.node_types),
    ):
        if unknown := [kind for kind in given if kind not in known]:
            raise ValueError(f"{what} {unknown} are not among {list(known)}")
    return names
