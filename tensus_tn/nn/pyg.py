"""PyTorch Geometric: `HeteroData`, `x_dict` and `edge_index_dict` as a RelationGraph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tensus_tn.nn.schema import Schema
from tensus_tn.propagation.assembly import Normalize
from tensus_tn.propagation.edge_lists import RelationKey, hetero_data_parts, relation_name
from tensus_tn.propagation.relation_graph import RelationGraph


def is_hetero_data(data: Any) -> bool:
    """Whether this looks like a `HeteroData`, or a batch of it."""
    return hasattr(data, "metadata") and hasattr(data, "edge_types")


def features_and_graph(x: Any, graph: Any) -> tuple[Any, Any]:
    """Both as they are, or those of `x` where it is a `HeteroData` and has both."""
    return (x.x_dict, x) if graph is None and is_hetero_data(x) else (x, graph)


def from_hetero_data(data: Any, schema: Schema, **options: Any) -> RelationGraph:
    """The graph of a `HeteroData`; types that it lacks have no nodes, or no edges."""
    index, counts, weight = hetero_data_parts(data)
    return from_edge_index(index, counts, schema, edge_weight=weight, **options)


def from_edge_index(
    edge_index: Mapping[Any, Tensor],
    num_nodes: Mapping[str, int],
    schema: Schema,
    *,
    edge_weight: Mapping[Any, Tensor] | None = None,
    normalize: Normalize = "row",
    self_loops: bool = True,
    dtype: torch.dtype | None = None,
) -> RelationGraph:
    """The graph of an `edge_index_dict`, with the relations and node types of a schema, in order.

    Edge types that it lacks, as a mini-batch may, have no edges.
    """
    if not schema.node_types:
        raise ValueError(
            "give metadata as (node_types, edge_types) for a layer over edge_index_dict"
        )
    names = {relation_name(kind): kind for kind in edge_index}
    for what, given, known in (
        ("edge types", names, schema.names),
        ("node types", num_nodes, schema.node_types),
    ):
        if unknown := [kind for kind in given if kind not in known]:
            raise ValueError(f"{what} {unknown} are not among {list(known)}")
    none = torch.empty(2, 0, dtype=torch.int64)
    relations: dict[RelationKey, Tensor] = {
        schema.edge_types[name]: edge_index[names[name]] if name in names else none
        for name in schema.names
    }
    return RelationGraph.from_edge_index(
        relations,
        {kind: num_nodes.get(kind, 0) for kind in schema.node_types},
        edge_weight=edge_weight,
        normalize=normalize,
        self_loops=self_loops,
        identity=True,
        zero=True,
        dtype=dtype,
    )
