"""DGL: a heterograph as a RelationGraph. It is asked for what it has; DGL is not imported."""

from __future__ import annotations

from typing import Any

from tensus_tn.nn import pyg
from tensus_tn.nn.schema import Schema
from tensus_tn.propagation.edge_lists import dgl_parts
from tensus_tn.propagation.relation_graph import RelationGraph


def is_dgl(graph: Any) -> bool:
    """Whether this looks like a `DGLGraph`."""
    return hasattr(graph, "canonical_etypes") and hasattr(graph, "ntypes")


def from_dgl(graph: Any, schema: Schema, **options: Any) -> RelationGraph:
    """The graph of a DGL heterograph, with the relations and node types of a schema, in order."""
    index, counts = dgl_parts(graph)
    return pyg.from_edge_index(index, counts, schema, **options)


def metadata(graph: Any) -> tuple[list[str], list[tuple[str, str, str]]]:
    """The node types and edge types of a DGL heterograph, as `MetaGraphConv` takes them."""
    return list(graph.ntypes), list(graph.canonical_etypes)
