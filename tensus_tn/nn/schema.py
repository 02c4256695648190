"""Which relations there are, between which node types, and which of them a link may choose."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensus_tn.dag import Dag, Edge
from tensus_tn.propagation.node_ids import relation_name

#: The two relations that need no edges, under the names that `RelationGraph` gives them.
IDENTITY, ZERO = "identity", "zero"

EdgeType = tuple[str, str, str]
#: PyG's (node types, edge types); or names of relations, with their (source, destination) types
#: where these are known.
Metadata = tuple[Sequence[str], Sequence[EdgeType]] | Sequence[str] | Mapping[str, tuple[str, str]]


@dataclass(frozen=True)
class Schema:
    """The relations of a heterogeneous graph, in order, and the node types that they join.

    Attributes:
        node_types: In the order in which a graph numbers its nodes; empty where unknown.
        edge_types: (source type, name, destination type) of every relation, by its full name;
            for relations without known types it is empty.
        names: The full names of the relations, without identity and zero.

    Example:
        >>> schema = Schema.of((["author", "paper"], [("author", "writes", "paper")]))
        >>> schema.relations
        ('author__writes__paper', 'identity', 'zero')
    """

    node_types: tuple[str, ...]
    edge_types: Mapping[str, EdgeType]
    names: tuple[str, ...]

    @classmethod
    def of(cls, metadata: Metadata | Schema) -> Schema:
        """Read metadata in any of its forms."""
        if isinstance(metadata, Schema):
            return metadata
        if isinstance(metadata, Mapping):
            for name, ends in metadata.items():
                if not _are_names(ends) or len(ends) != 2:
                    raise TypeError(
                        f"relation {name!r}: expected (source type, destination type), got {ends!r}"
                    )
            edge_types = {name: (ends[0], name, ends[1]) for name, ends in metadata.items()}
            return cls._checked((), edge_types, tuple(metadata))
        if isinstance(metadata, str) or len(metadata) == 0:
            raise TypeError(f"metadata is (node types, edge types) or names, got {metadata!r}")
        if all(isinstance(name, str) for name in metadata):
            names = tuple(name for name in metadata if name not in (IDENTITY, ZERO))
            return cls._checked((), {}, names)  # type: ignore[arg-type]
        if len(metadata) != 2:
            raise TypeError(f"metadata is (node types, edge types) or names, got {metadata!r}")
        nodes, edges = metadata
        if not _are_names(nodes):
            raise TypeError(
                f"metadata is (node types, edge types), but {nodes!r} are no names of node types"
            )
        if strange := [kind for kind in edges if not _are_names(kind) or len(kind) != 3]:
            raise TypeError(
                "metadata is (node types, edge types), where an edge type is (source type, name, "
                f"destination type), got {strange[0]!r}"
            )
        by_name = {relation_name(kind): tuple(kind) for kind in edges}
        return cls._checked(tuple(nodes), by_name, tuple(relation_name(k) for k in edges))  # type: ignore[arg-type]

    @classmethod
    def _checked(
        cls, node_types: tuple[str, ...], edge_types: Mapping[str, EdgeType], names: tuple[str, ...]
    ) -> Schema:
        for kind in edge_types.values():
            for end in (kind[0], kind[2]):
                if node_types and end not in node_types:
                    raise ValueError(
                        f"edge type {kind!r}: node type {end!r} is not among {list(node_types)}"
                    )
        for what, items in (("node types", node_types), ("relations", (*names, IDENTITY, ZERO))):
            if len(set(items)) < len(items):
                raise ValueError(f"two {what} have the same name: {list(items)}")
        return cls(node_types, edge_types, names)

    @property
    def relations(self) -> tuple[str, ...]:
        """What a `RelationGraph` must have as its `relation_names`."""
        return (*self.names, IDENTITY, ZERO)

    def choices(
        self,
        dag: Dag,
        target: str | None = None,
        given: Mapping[Edge, Sequence[str]] | None = None,
    ) -> dict[Edge, tuple[str, ...]]:
        """The relations that each link of `dag` may choose: the search space of DiffMG.

        Links into the sink choose from the relations that end in the node type `target`, and
        the identity; all others from all relations, and the identity. A residual link may also
        choose zero. The link from the last of a node's predecessors, in topological order, is
        not residual: so every state receives something. Links that are `given` choose from what
        is given.

        Example:
            >>> schema = Schema.of({"PA": ("A", "P"), "AP": ("P", "A")})
            >>> choices = schema.choices(Dag.complete(2), target="A")
            >>> choices[0, 1], choices[1, 2], choices[0, 2]
            (('PA', 'AP', 'identity'), ('AP', 'identity'), ('AP', 'identity', 'zero'))
        """
        into_sink = self.names if target is None else self._ending_in(target)
        position = {node: k for k, node in enumerate(dag.nodes)}
        last = {head: max(position[j] for j, k in dag.edges if k == head) for _, head in dag.edges}
        if unknown := [edge for edge in given or {} if edge not in dag.edges]:
            raise ValueError(f"choices for {unknown}, which are no links of {dag}")
        choices: dict[Edge, tuple[str, ...]] = {
            (tail, head): (
                *(into_sink if head == dag.sink else self.names),
                IDENTITY,
                *([] if position[tail] == last[head] else [ZERO]),
            )
            for tail, head in dag.edges
        }
        return choices | {edge: tuple(names) for edge, names in (given or {}).items()}

    def _ending_in(self, target: str) -> tuple[str, ...]:
        known = self.node_types or {end for kind in self.edge_types.values() for end in kind[::2]}
        if target not in known:
            raise ValueError(
                f"target {target!r} is not among the node types {sorted(known)}"
                if known
                else f"target {target!r} needs relations with node types, given are only {self.names}"
            )
        return tuple(name for name in self.names if self.edge_types[name][2] == target)


def _are_names(names: Any) -> bool:
    """Whether these are strings, and not the letters of one."""
    several = isinstance(names, Collection) and not isinstance(names, str)
    return several and all(isinstance(name, str) for name in names)
