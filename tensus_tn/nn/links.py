"""Which links of a meta-graph carry anything from source to sink."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tensus_tn.dag import Dag, Edge, Node
from tensus_tn.nn.schema import ZERO


def useful_links(dag: Dag, relations: Mapping[Edge, str]) -> Iterator[tuple[Node, list[Edge]]]:
    """The nodes between source and sink that non-zero links join, each with the links into it.

    Example:
        >>> relations = {(0, 1): "PA", (1, 2): "AP", (0, 2): "zero"}
        >>> list(useful_links(Dag.complete(2), relations))
        [(1, [(0, 1)]), (2, [(1, 2)])]
    """
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
