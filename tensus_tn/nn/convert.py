"""Graphs of PyG and DGL as a RelationGraph with the relations of a schema.

Both are read by their attributes; neither is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tensus_tn.nn.graph_cache import cached
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
    weights: Mapping[Any, Tensor] | None = None,
    normalize: Normalize = "row",
    self_loops: bool = True,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
) -> RelationGraph:
    """A graph in any form that a layer takes, with the relations and node types of a schema, in order.

    Types that it lacks, as a mini-batch may, have no nodes or no edges; edge types that the schema
    lacks are ignored. The result is kept, see `graph_cache`.

    Args:
        edges: A `HeteroData`, a DGL graph, or an `edge_index_dict` with `num_nodes`.
        num_nodes: The number of nodes of every type, for an `edge_index_dict`.
        schema: Its relations, with the identity and zero, are those of the result.
        weights: The weights of the edges, by type; they may learn.
        normalize: As for `RelationGraph`.
        self_loops: As for `RelationGraph`.
        dtype: As for `RelationGraph`.
        device: Where it is to be.
    """
    index, counts, own = _parts(edges, num_nodes)
    given = {} if weights is None else weights
    if strange := [kind for kind, weight in given.items() if kind not in index and len(weight)]:
        raise ValueError(f"weights for edges {strange}, but there are edges of {list(index)}")
    index, counts = _known(index, schema), _counts(counts, schema)
    weight = _known(own if weights is None else weights, schema)
    none = torch.empty(2, 0, dtype=torch.int64)

    def convert() -> RelationGraph:
        graph = RelationGraph.from_edge_index(
            {kind: index.get(kind, none) for kind in schema.edge_types.values()},
            counts,
            edge_weight=weight,
            normalize=normalize,
            self_loops=self_loops,
            identity=True,
            zero=True,
            dtype=dtype,
        )
        return graph.to(device)

    mode = tuple(normalize.items()) if isinstance(normalize, Mapping) else normalize
    types = (tuple(schema.edge_types.values()), tuple(index), tuple(weight), tuple(counts.items()))
    options = (types, mode, self_loops, dtype, device)
    return cached([*index.values(), *weight.values()], options, convert)


def dgl_metadata(graph: Any) -> tuple[list[str], list[tuple[str, str, str]]]:
    """The node types and edge types of a DGL heterograph, as `MetaGraphConv` takes them."""
    return list(graph.ntypes), list(graph.canonical_etypes)


def _parts(
    edges: Any, num_nodes: Mapping[str, int] | None
) -> tuple[Mapping[Any, Tensor], Mapping[str, int], Mapping[Any, Tensor]]:
    """Edges, numbers of nodes and weights, by type."""
    if hasattr(edges, "canonical_etypes") and hasattr(edges, "ntypes"):
        return *dgl_parts(edges), {}
    if _is_hetero_data(edges):
        return hetero_data_parts(edges)
    if isinstance(edges, Mapping) and num_nodes is not None:
        return edges, num_nodes, {}
    raise TypeError(
        "expected a RelationGraph, a HeteroData, a DGL graph, or an edge_index_dict with "
        f"the numbers of nodes, got {type(edges).__name__}"
    )


def _is_hetero_data(data: Any) -> bool:
    """Whether this looks like a `HeteroData`, or a batch of it."""
    return hasattr(data, "metadata") and hasattr(data, "edge_types")


def _known(by_type: Mapping[Any, Tensor], schema: Schema) -> dict[RelationKey, Tensor]:
    """Those of the edge types that a schema has."""
    if not schema.node_types:
        raise ValueError(
            "give metadata as (node_types, edge_types) for a layer over edge_index_dict"
        )
    names = {relation_name(kind): given for kind, given in by_type.items()}
    return {kind: names[name] for name, kind in schema.edge_types.items() if name in names}


def _counts(counts: Mapping[str, int], schema: Schema) -> dict[str, int]:
    """The number of nodes of every type of a schema."""
    if unknown := [kind for kind in counts if kind not in schema.node_types]:
        raise ValueError(f"node types {unknown} are not among {list(schema.node_types)}")
    return {kind: counts.get(kind, 0) for kind in schema.node_types}
