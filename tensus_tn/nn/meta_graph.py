"""MetaGraph and MetaPath: what a layer has learned, as objects to read, draw, export and count."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from tensus_tn._arguments import check_size
from tensus_tn.dag import Dag, Edge, Node
from tensus_tn.explorer.svg import dag_svg
from tensus_tn.nn.instances import count_instances, list_instances
from tensus_tn.nn.links import useful_links
from tensus_tn.nn.schema import IDENTITY, EdgeType
from tensus_tn.propagation.relation_graph import RelationGraph

if TYPE_CHECKING:
    import networkx
    from matplotlib.axes import Axes

#: The relations along a path from source to sink, without identities.
Word = tuple[str, ...]


@dataclass(frozen=True)
class MetaPath:
    """Relations one after the other, in the order in which features flow along them.

    Attributes:
        edge_types: (source type, name, destination type) of each, as PyG's `AddMetaPaths` takes it.
        weight: How much it counts; its meaning is that of where the path comes from.

    Example:
        >>> path = MetaPath((("venue", "publishes", "paper"), ("paper", "of", "author")), 0.5)
        >>> print(path)
        venue -publishes-> paper -of-> author
        >>> path.letters()
        'APV'
    """

    edge_types: tuple[EdgeType, ...]
    weight: float = 1.0

    def __str__(self) -> str:
        return _text(self.edge_types)

    @property
    def node_types(self) -> tuple[str, ...]:
        """The types of the nodes along the path."""
        first = tuple(kind[0] for kind in self.edge_types[:1])
        return first + tuple(kind[2] for kind in self.edge_types)

    @property
    def joins(self) -> bool:
        """Whether every relation begins at the type where the one before it ends."""
        return all(a[2] == b[0] for a, b in pairwise(self.edge_types))

    def letters(self, letter: Mapping[str, str] | None = None) -> str:
        """The path as a string of types such as `"APVPA"`, the type that receives first.

        Args:
            letter: What stands for a node type; its first letter, as a capital, when None.

        Raises:
            ValueError: If two node types begin alike and `letter` is None.
        """
        if letter is None:
            letter = {kind: kind[:1].upper() for kind in self.node_types}
            if len(set(letter.values())) < len(letter):
                raise ValueError(
                    f"node types {sorted(letter)} begin alike: say what stands for each"
                )
        return "".join(letter[kind] for kind in reversed(self.node_types))

    def title(self) -> str:
        """The path as people call it, then as text; the text alone where letters do not tell it.

        Example:
            >>> MetaPath((("venue", "publishes", "paper"), ("paper", "of", "author"))).title()
            'APV: venue -publishes-> paper -of-> author'
        """
        initials = {kind: kind[:1].upper() for kind in self.node_types}
        told = self.joins and "" not in initials and len(set(initials.values())) == len(initials)
        return f"{self.letters()}: {self}" if told and self.edge_types else str(self)


@dataclass(frozen=True)
class MetaGraph:
    """One relation for each link of a DAG.

    Attributes:
        dag: States and links.
        relations: The name of the relation of every link; `"identity"` and `"zero"` are two of them.
        weights: The probability of each link's choice, all other links being open.
        edge_types: (source type, name, destination type) of relations whose types are known.
        probability: The probability of the whole meta-graph.

    Example:
        >>> relations = {(0, 1): "PA", (0, 2): "zero", (1, 2): "CP"}
        >>> types = {"PA": ("A", "PA", "P"), "CP": ("P", "CP", "C")}
        >>> meta_graph = MetaGraph(Dag.complete(2), relations, edge_types=types)
        >>> print(meta_graph)
        CPA: A -PA-> P -CP-> C
        >>> MetaGraph.from_json(meta_graph.to_json()) == meta_graph
        True
    """

    dag: Dag
    relations: Mapping[Edge, str]
    weights: Mapping[Edge, float] = field(default_factory=dict)
    edge_types: Mapping[str, EdgeType] = field(default_factory=dict)
    probability: float = 1.0

    def __post_init__(self) -> None:
        if set(self.relations) != set(self.dag.edges):
            raise ValueError(
                f"expected a relation for each of the links {list(self.dag.edges)}, got "
                f"{list(self.relations)}"
            )
        ordered = {edge: self.relations[edge] for edge in self.dag.edges}
        object.__setattr__(self, "relations", ordered)

    def __hash__(self) -> int:
        return hash((self.dag, frozenset(self.relations.items()), self.probability))

    @property
    def links(self) -> tuple[Edge, ...]:
        """The links on a path from source to sink, without those of relation zero."""
        useful = useful_links(self.dag, self.relations)
        return tuple(edge for _, edges in useful for edge in edges)

    def __str__(self) -> str:
        """One line for each way from source to sink: its types in letters, then its relations.

        A comma stands where the types do not join: such a way carries features only by the self-loops
        of a relation, and has no letters.
        """
        lines = []
        for word, times in self._words().items():
            path = MetaPath(tuple(self.edge_types.get(name, ("", name, "")) for name in word))
            lines.append(path.title() + (f"  (x {times})" if times > 1 else ""))
        return "\n".join(lines) or "no path from source to sink"

    def paths(self) -> list[MetaPath]:
        """The meta-paths from source to sink whose types join, identities left out.

        Their weight is the number of ways along the links that spell them.

        Example:
            >>> types = {"PA": ("A", "PA", "P"), "AP": ("P", "AP", "A")}
            >>> relations = {(0, 1): "PA", (0, 2): "identity", (1, 2): "AP"}
            >>> [str(p) for p in MetaGraph(Dag.complete(2), relations, edge_types=types).paths()]
            ['identity', 'A -PA-> P -AP-> A']
        """
        return paths_that_join(self._words(), self.edge_types)

    def _words(self) -> Counter[Word]:
        words: dict[Node, Counter[Word]] = {self.dag.source: Counter({(): 1})}
        for node, links in useful_links(self.dag, self.relations):
            words[node] = Counter()
            for edge in links:
                name = self.relations[edge]
                for word, times in words[edge[0]].items():
                    words[node][word if name == IDENTITY else (*word, name)] += times
        return words.get(self.dag.sink, Counter())

    def count(self, graph: RelationGraph, *, max_rows: int = 20_000_000) -> int:
        """The number of instances in a graph, exact up to 2^53.

        An instance gives a node to every state such that all links find an edge of their relation;
        self-loops that the graph adds to its relations do not count.

        Raises:
            ValueError: If that needs a table of more than `max_rows` rows.

        Example:
            >>> import torch
            >>> knows = {"K": torch.tensor([[0, 0, 1, 2], [1, 2, 3, 3]])}
            >>> graph = RelationGraph.from_edge_index(knows, 4)
            >>> MetaGraph(Dag.path(2), {(0, 1): "K", (1, 2): "K"}).count(graph)
            2
        """
        return count_instances(graph, self.dag, self.relations, max_rows)

    def instances(self, graph: RelationGraph, limit: int = 5) -> list[dict[Node, int]]:
        """Up to `limit` instances in a graph: for each, the node of every state that has a link.

        Example:
            >>> import torch
            >>> knows = {"K": torch.tensor([[0, 0, 1, 2], [1, 2, 3, 3]])}
            >>> graph = RelationGraph.from_edge_index(knows, 4)
            >>> MetaGraph(Dag.path(2), {(0, 1): "K", (1, 2): "K"}).instances(graph)
            [{0: 0, 1: 1, 2: 3}, {0: 0, 1: 2, 2: 3}]
        """
        return list_instances(graph, self.dag, self.relations, check_size("limit", limit))

    def draw(self, ax: Axes | None = None) -> Axes:
        """Draw the links with their relations and weights; needs matplotlib.

        Example:
            >>> axes = MetaGraph(Dag.path(1), {(0, 1): "PA"}).draw()
            >>> [text.get_text() for text in axes.texts]
            ['PA', '0', '1']
        """
        weights = {edge: f" {weight:.2f}" for edge, weight in self.weights.items()}
        labels = {  # a dollar would begin a formula
            edge: self.relations[edge].replace("$", r"\$") + weights.get(edge, "")
            for edge in self._require_links()
        }
        return Dag(labels).draw(ax, edge_labels=labels)

    def _repr_html_(self) -> str:
        """A small picture, which Jupyter shows."""
        links = self.links
        return dag_svg(Dag(links), {e: self.relations[e] for e in links}) if links else str(self)

    def to_networkx(self) -> networkx.DiGraph:
        """The links as a networkx `DiGraph` with the attributes `relation` and `weight`.

        Example:
            >>> graph = MetaGraph(Dag.path(1), {(0, 1): "PA"}).to_networkx()
            >>> list(graph.edges(data=True))
            [(0, 1, {'relation': 'PA', 'weight': 1.0})]
        """
        import networkx

        graph = networkx.DiGraph()
        for edge in self.links:
            relation, weight = self.relations[edge], self.weights.get(edge, 1.0)
            graph.add_edge(*edge, relation=relation, weight=weight)
        return graph

    def to_dot(self) -> str:
        """The links in the language of Graphviz.

        Example:
            >>> print(MetaGraph(Dag.path(1), {(0, 1): "PA"}).to_dot())
            digraph {
              rankdir=LR
              "0" -> "1" [label="PA"]
            }
        """

        def quoted(value: object) -> str:
            return json.dumps(str(value), ensure_ascii=False)

        lines = [
            f"  {quoted(tail)} -> {quoted(head)} [label={quoted(self.relations[tail, head])}]"
            for tail, head in self.links
        ]
        return "\n".join(["digraph {", "  rankdir=LR", *lines, "}"])

    def to_json(self) -> str:
        """All of it as JSON; the DAG's nodes must be strings or integers.

        Example:
            >>> MetaGraph(Dag.path(1), {(0, 1): "PA"}).to_json()
            '{"links": [[0, 1, "PA", null]], "edge_types": {}, "probability": 1.0}'
        """
        if odd := [node for node in self.dag.nodes if type(node) not in (str, int)]:
            raise TypeError(f"only nodes that are strings or integers go into JSON, not {odd[0]!r}")
        links = [
            [tail, head, self.relations[tail, head], self.weights.get((tail, head))]
            for tail, head in self.dag.edges
        ]
        kinds = {name: list(kind) for name, kind in self.edge_types.items()}
        return json.dumps({"links": links, "edge_types": kinds, "probability": self.probability})

    @classmethod
    def from_json(cls, text: str) -> MetaGraph:
        """Read what `to_json` wrote.

        Raises:
            ValueError: If it is something else.
        """
        try:
            content = json.loads(text)
            links = [((tail, head), name, weight) for tail, head, name, weight in content["links"]]
            relations = {edge: name for edge, name, _ in links}
            if odd := [name for name in relations.values() if not isinstance(name, str)]:
                raise TypeError(f"relation {odd[0]!r} is no text")
            kinds = {name: (a, r, b) for name, (a, r, b) in content["edge_types"].items()}
            probability = float(content["probability"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"not the JSON of a MetaGraph: {error!r}") from None
        return cls(
            Dag(edge for edge, *_ in links),
            relations,
            {edge: weight for edge, _, weight in links if weight is not None},
            kinds,
            probability,
        )

    def _require_links(self) -> tuple[Edge, ...]:
        if not self.links:
            raise ValueError("the meta-graph has no path from source to sink")
        return self.links


def paths_that_join(
    words: Mapping[Word, float], edge_types: Mapping[str, EdgeType]
) -> list[MetaPath]:
    """The words whose relations join: each begins in the node type where the last one ended."""
    paths = [
        MetaPath(tuple(edge_types.get(name, ("", name, "")) for name in word), float(weight))
        for word, weight in words.items()
    ]
    return [path for path in paths if path.joins]


def _text(edge_types: Iterable[EdgeType]) -> str:
    """`A -AP-> P -PC-> C`, with a comma where one does not begin where the last one ended."""
    text, end = "", None
    for source, name, target in edge_types:
        if source != end:
            text += (", " if text else "") + source
        text += f" -{name}-> {target}" if source or target else f" -{name}->"
        end = target
    return text.strip() or "identity"


def check_meta_graphs(meta_graphs: Sequence[MetaGraph], relations: Sequence[str]) -> None:
    """Check that there are meta-graphs, which have a path, and relations that a graph has."""
    if not meta_graphs:
        raise ValueError("at least one meta-graph is needed, got none")
    for meta_graph in meta_graphs:
        meta_graph._require_links()
        if unknown := set(meta_graph.relations.values()) - set(relations):
            raise ValueError(f"relations {sorted(unknown)} are not among {list(relations)}")
