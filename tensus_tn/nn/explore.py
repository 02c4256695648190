"""What a layer has learned, as views of the page that tensus_tn.explorer writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensus_tn.explorer.page import Entry, View
from tensus_tn.network.tensor import DagTensor
from tensus_tn.nn import learned
from tensus_tn.nn.meta_graph import MetaGraph
from tensus_tn.nn.schema import EdgeType
from tensus_tn.propagation.relation_graph import RelationGraph

#: The names of the nodes of some types, in order.
NodeNames = Mapping[str, Sequence[str]]

_SHOWN = 3  # instances of each meta-graph


def meta_graph_view(
    name: str,
    tensor: DagTensor,
    k: int,
    edge_types: Mapping[str, EdgeType],
    graph: RelationGraph | None = None,
    node_names: NodeNames | None = None,
) -> View:
    """A distribution over meta-graphs, with its best `k`; with a graph, also where they occur in it."""
    entries = []
    for meta_graph in learned.meta_graphs(tensor, k, edge_types):
        choices = [
            tensor.choice_names[edge].index(relation)
            for edge, relation in meta_graph.relations.items()
        ]
        entries.append(
            Entry(
                choices,
                tensor.log_prob(choices).item(),
                str(meta_graph),
                [tensor.dag.edges.index(edge) for edge in meta_graph.links],
                [] if graph is None else instance_lines(meta_graph, graph, node_names or {}),
            )
        )
    return View(name, tensor, entries)


def instance_lines(meta_graph: MetaGraph, graph: RelationGraph, node_names: NodeNames) -> list[str]:
    """A few instances of a meta-graph, a line each: the nodes of its states, by name if they have one.

    Example:
        >>> import torch
        >>> from tensus_tn import Dag
        >>> edges = {("author", "writes", "paper"): torch.tensor([[0, 1], [0, 0]])}
        >>> graph = RelationGraph.from_edge_index(edges, {"author": 2, "paper": 1})
        >>> writes = MetaGraph(Dag.path(1), {(0, 1): "author__writes__paper"})
        >>> instance_lines(writes, graph, {"author": ["Ada", "Grace"]})
        ['Ada, paper 0', 'Grace, paper 0']
    """
    found = meta_graph.instances(graph, _SHOWN)
    return [", ".join(_node(node, graph, node_names) for node in one.values()) for one in found]


def _node(node: int, graph: RelationGraph, node_names: NodeNames) -> str:
    kind, rows = next((k, r) for k, r in graph.node_types.items() if r.start <= node < r.stop)
    number = node - rows.start
    return node_names[kind][number] if kind in node_names else f"{kind} {number}"
