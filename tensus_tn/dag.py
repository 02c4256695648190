"""Directed acyclic graphs with one source and one sink: the topology of a tensor network."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from heapq import heappop, heappush
from itertools import combinations
from typing import TYPE_CHECKING, Any

from tensus_tn._arguments import check_memory, check_size

if TYPE_CHECKING:
    import networkx
    from matplotlib.axes import Axes

Node = Hashable
Edge = tuple[Node, Node]

_EDGE_BYTES = 300  # that an edge takes at least while a Dag is made


class Dag:
    """A directed acyclic graph with one source and one sink, every node on a path between them.

    Args:
        edges: Pairs `(tail, head)` of hashable node names. Their order is kept: it is the order of
            the axes of a `DagTensor` over this graph.

    Attributes:
        edges: The edges, in the order given.
        nodes: The nodes in topological order; among equals, the order of first appearance.
        source: The node without incoming edges.
        sink: The node without outgoing edges.
        inner: The nodes between source and sink; each carries a rank index.

    Raises:
        ValueError: If there are no edges, a self-loop, a duplicate edge, a cycle, or more than one
            source or sink; the message names the culprit.

    Example:
        >>> dag = Dag([("x", "a"), ("a", "y"), ("x", "y")])
        >>> dag.source, dag.sink, dag.inner
        ('x', 'y', ('a',))
        >>> dag
        Dag([('x', 'a'), ('a', 'y'), ('x', 'y')])
    """

    __slots__ = ("edges", "inner", "nodes", "sink", "source")

    edges: tuple[Edge, ...]
    nodes: tuple[Node, ...]
    inner: tuple[Node, ...]
    source: Node
    sink: Node

    def __init__(self, edges: Iterable[Edge]) -> None:
        pairs = tuple(_as_edge(edge) for edge in edges)
        _check_edges(pairs)
        nodes = _topological_order(pairs)
        heads, tails = {head for _, head in pairs}, {tail for tail, _ in pairs}
        source = _only("source", [node for node in nodes if node not in heads])
        sink = _only("sink", [node for node in nodes if node not in tails])
        # With one source and one sink, every node of a finite acyclic graph lies on a path from the
        # one to the other, so there is nothing more to check.
        inner = tuple(node for node in nodes if node not in (source, sink))
        values = {"edges": pairs, "nodes": nodes, "inner": inner, "source": source, "sink": sink}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @classmethod
    def path(cls, num_edges: int) -> Dag:
        """The path `0 -> 1 -> ... -> num_edges`: the topology of a tensor train (eq. 9).

        Example:
            >>> Dag.path(3).edges
            ((0, 1), (1, 2), (2, 3))
        """
        check_memory("edges", check_size("num_edges", num_edges), _EDGE_BYTES)
        return cls((k, k + 1) for k in range(num_edges))

    @classmethod
    def complete(cls, last: int) -> Dag:
        """Every edge `(j, k)` with `0 <= j < k <= last`: the search space of DiffMG (eq. 12).

        Example:
            >>> Dag.complete(2).edges
            ((0, 1), (0, 2), (1, 2))
        """
        check_memory("edges", check_size("last", last) * (last + 1) // 2, _EDGE_BYTES)
        return cls(combinations(range(last + 1), 2))

    @classmethod
    def from_networkx(cls, graph: networkx.DiGraph) -> Dag:
        """The edges of a networkx `DiGraph`, ordered by their attribute `axis` where all have it.

        Raises:
            ValueError: As the constructor, and for an undirected graph, a multigraph or a node
                without edges.

        Example:
            >>> import networkx as nx
            >>> Dag.from_networkx(nx.DiGraph([("x", "y"), ("y", "z")])).inner
            ('y',)
        """
        if not graph.is_directed() or graph.is_multigraph():
            raise ValueError(f"expected a networkx.DiGraph, got a {type(graph).__name__}")
        isolated = [node for node in graph if graph.degree(node) == 0]
        if isolated:
            raise ValueError(f"node {isolated[0]!r} has no edges: not on a source-to-sink path")
        edges = list(graph.edges(data="axis"))
        if all(axis is not None for *_, axis in edges):
            edges.sort(key=lambda edge: edge[2])
        return cls(edge[:2] for edge in edges)

    def to_networkx(self) -> networkx.DiGraph:
        """This graph as a networkx `DiGraph`, nodes in topological order.

        Example:
            >>> list(Dag.path(2).to_networkx().edges)
            [(0, 1), (1, 2)]
        """
        import networkx

        graph = networkx.DiGraph()
        graph.add_nodes_from(self.nodes)
        # networkx lists edges by node: the attribute keeps the order of the axes.
        graph.add_edges_from((*edge, {"axis": k}) for k, edge in enumerate(self.edges))
        return graph

    def draw(
        self, ax: Axes | None = None, *, edge_labels: Mapping[Edge, object] | None = None
    ) -> Axes:
        """Draw the graph from left to right, source first; needs matplotlib.

        Args:
            ax: The axes to draw on; a new figure when `None`.
            edge_labels: Text for some or all edges, written at the middle of each.

        Returns:
            The axes drawn on.
        """
        from tensus_tn._draw import draw_dag

        return draw_dag(self, ax, edge_labels or {})

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"Dag is immutable: cannot set {name!r}")

    def __reduce__(self) -> tuple[type[Dag], tuple[tuple[Edge, ...]]]:
        return type(self), (self.edges,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dag) and self.edges == other.edges

    def __hash__(self) -> int:
        return hash(self.edges)

    def __repr__(self) -> str:
        whole = f"Dag({list(self.edges)})"
        if len(whole) <= 100:
            return whole
        return f"Dag([{self.edges[0]}, ..., {self.edges[-1]}], {len(self.edges)} edges)"


def _as_edge(edge: Any) -> Edge:
    if not isinstance(edge, (tuple, list)) or len(edge) != 2:
        raise ValueError(f"an edge is a pair (tail, head), got {edge!r}")
    return (edge[0], edge[1])


def _check_edges(edges: tuple[Edge, ...]) -> None:
    if not edges:
        raise ValueError("a Dag needs at least one edge, got none")
    seen: set[Edge] = set()
    for edge in edges:
        if edge[0] == edge[1]:
            raise ValueError(f"edge {edge!r} is a self-loop")
        if edge in seen:
            raise ValueError(f"edge {edge!r} is given twice")
        seen.add(edge)


def _only(role: str, nodes: list[Node]) -> Node:
    if len(nodes) != 1:
        raise ValueError(f"a Dag has one {role}, got {len(nodes)}: {nodes}")
    return nodes[0]


def _topological_order(edges: tuple[Edge, ...]) -> tuple[Node, ...]:
    """Kahn's algorithm; among the ready nodes, the first to appear in `edges` comes first."""
    nodes = list(dict.fromkeys(node for edge in edges for node in edge))
    number = {node: k for k, node in enumerate(nodes)}
    heads: list[list[int]] = [[] for _ in nodes]
    waiting_for = [0] * len(nodes)
    for tail, head in edges:
        heads[number[tail]].append(number[head])
        waiting_for[number[head]] += 1
    ready = [k for k, count in enumerate(waiting_for) if count == 0]  # sorted: a heap
    order: list[Node] = []
    while ready:
        k = heappop(ready)
        order.append(nodes[k])
        for head in heads[k]:
            waiting_for[head] -= 1
            if waiting_for[head] == 0:
                heappush(ready, head)
    if len(order) < len(nodes):
        raise ValueError(f"the edges contain a cycle: {_show_cycle(edges, set(order))}")
    return tuple(order)


def _show_cycle(edges: tuple[Edge, ...], done: set[Node]) -> str:
    """Walk backwards through nodes that all have a predecessor: the first repetition is a cycle."""
    tail_of = {head: tail for tail, head in edges if head not in done and tail not in done}
    walk, seen = [next(iter(tail_of))], set()
    while walk[-1] not in seen:
        seen.add(walk[-1])
        walk.append(tail_of[walk[-1]])
    cycle = [repr(node) for node in reversed(walk[walk.index(walk[-1]) :])]
    return " -> ".join(cycle if len(cycle) <= 20 else [*cycle[:9], "...", *cycle[-9:]])
