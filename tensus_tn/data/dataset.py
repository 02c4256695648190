"""A heterogeneous graph with what is to be learned on it, checked once when it is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor

from tensus_tn.data.arrays import one_hot
from tensus_tn.data.typing import SPLITS, Normalisation, Split
from tensus_tn.propagation.node_ids import RelationKey, require_ids, type_slices
from tensus_tn.propagation.relation_graph import RelationGraph


class Relation(NamedTuple):
    """Edges (2, E) in global ids, row 0 sends and row 1 receives, and the node types of both ends."""

    source: str
    destination: str
    edges: Tensor


@dataclass(frozen=True, eq=False)
class NodeLabels:
    """Classes of the nodes of one type, and the ids of those to learn from and to test.

    Attributes:
        kind: The node type.
        labels: The class (N,) of every node, -1 where it has none; or, where classes do not exclude
            each other, 1 or 0 for every class, (N, num_classes), with -1 in a row where they are
            unknown. The labels of the test nodes may all be unknown.
        nodes: The ids of each split.
        num_classes: Classes count from 0.
        doubtful: Whether the labels of the test nodes may be random, as they are in some public
            copies of a benchmark.

    Example:
        >>> split = {"train": torch.tensor([0]), "val": torch.tensor([1]), "test": torch.tensor([2])}
        >>> NodeLabels("paper", torch.tensor([0, 1, 1]), split, num_classes=2)
        NodeLabels(paper, 2 classes, train 1, val 1, test 1)
        >>> NodeLabels("film", torch.tensor([[0, 1], [1, 1], [-1, -1]]), split, num_classes=2)
        NodeLabels(film, 2 classes, several for a node, train 1, val 1, test 1 of unknown classes)
    """

    kind: str
    labels: Tensor
    nodes: Mapping[Split, Tensor]
    num_classes: int
    doubtful: bool = False

    def __post_init__(self) -> None:
        _require_splits(self.nodes)
        for split in SPLITS:
            require_ids(f"{split} node", self.nodes[split], len(self.labels))
            self._check_labels(split)
        every = torch.cat([self.nodes[split] for split in SPLITS])
        if len(every.unique()) < len(every):
            raise ValueError("a node is in two splits, or twice in one: scores would mean nothing")

    def _check_labels(self, split: Split) -> None:
        label = self.labels[self.nodes[split]]
        if split == "test" and bool((label == -1).all()):
            return
        if self.multi_label and self.labels.shape != (len(self.labels), self.num_classes):
            raise ValueError(
                f"expected labels (N,) or (N, {self.num_classes}), got {tuple(self.labels.shape)}"
            )
        what = "label of a" if not self.multi_label else "0 or 1 for each class of a"
        limit = 2 if self.multi_label else self.num_classes
        require_ids(f"{what} {split} node: class", label.flatten(), limit)

    @property
    def multi_label(self) -> bool:
        """Whether a node may have several classes, or none of them."""
        return self.labels.ndim == 2

    def known(self, split: Split) -> bool:
        """Whether the labels of a split are known; those of the test nodes may not be."""
        return bool((self.labels[self.nodes[split]] != -1).all())

    def __repr__(self) -> str:
        sizes = ", ".join(f"{split} {len(self.nodes[split])}" for split in SPLITS)
        several = " several for a node," if self.multi_label else ""
        unknown = "" if self.known("test") else " of unknown classes"
        return f"NodeLabels({self.kind}, {self.num_classes} classes,{several} {sizes}{unknown})"


@dataclass(frozen=True, eq=False)
class NodePairs:
    """Positive and negative pairs (n, 2) of a source and a destination, global ids, as many of each.

    Example:
        >>> pairs = {split: torch.tensor([[0, 2]]) for split in SPLITS}
        >>> NodePairs("user", "item", positive=pairs, negative=pairs)
        NodePairs(user, item, train 1, val 1, test 1)
    """

    source: str
    destination: str
    positive: Mapping[Split, Tensor]
    negative: Mapping[Split, Tensor]

    def __post_init__(self) -> None:
        for pairs in (self.positive, self.negative):
            _require_splits(pairs)
        for split in SPLITS:
            shapes = tuple(self.positive[split].shape), tuple(self.negative[split].shape)
            if shapes[0] != shapes[1] or len(shapes[0]) != 2 or shapes[0][1] != 2:
                raise ValueError(
                    f"{split}: expected as many positive as negative pairs, both (n, 2), got "
                    f"{shapes[0]} and {shapes[1]}"
                )

    def __repr__(self) -> str:
        sizes = ", ".join(f"{split} {len(self.positive[split])}" for split in SPLITS)
        return f"NodePairs({self.source}, {self.destination}, {sizes})"


@dataclass(frozen=True, eq=False)
class Dataset:
    """A heterogeneous graph and its labels or pairs, in global node ids.

    Attributes:
        name: For messages and results.
        node_counts: Node types and their sizes; the nodes of a type have consecutive ids.
        relations: By name, in order.
        target: What is to be learned: `NodeLabels` or `NodePairs`.
        features: Finite features (n, F) of the types that have some, dense or sparse; the nodes of
            other types are told apart by their ids.
        symmetric: Relations that are normalised on both sides under `"diffmg"`.
        mistyped: The ids of a relation may contradict its types. So they do in one published
            protocol, DiffMG's on DBLP (`node_types="diffmg"`); elsewhere that is a mistake.

    Example:
        >>> from tensus_tn.data import planted
        >>> data = planted(num_nodes=50)
        >>> data
        Dataset(planted, 150 nodes: s 50, m 50, t 50; relations A 100, C 100, B 100, D 100;
            NodeLabels(t, 2 classes, train 25, val 12, test 13))
        >>> data.graph().relation_names
        ('A', 'C', 'B', 'D', 'identity', 'zero')
    """

    name: str
    node_counts: Mapping[str, int]
    relations: Mapping[str, Relation]
    target: NodeLabels | NodePairs
    features: Mapping[str, Tensor] = field(default_factory=dict)
    symmetric: frozenset[str] = frozenset()
    mistyped: bool = False

    def __post_init__(self) -> None:
        if not self.relations:
            raise ValueError(f"data set {self.name!r} has no relations")
        for name, relation in self.relations.items():
            self._check_relation(f"relation {name!r}", relation)
        for name in self.symmetric:
            if name not in self.relations:
                raise ValueError(f"no relation {name!r} among {list(self.relations)}")
        for kind, features in self.features.items():
            self._check_features(kind, features)
        if isinstance(self.target, NodeLabels):
            if len(self.target.labels) != self.num_nodes:
                raise ValueError(
                    f"expected a label for each of {self.num_nodes} nodes (-1 for none), got "
                    f"{len(self.target.labels)}"
                )
            for split in SPLITS:
                self._check_nodes(f"{split} node", self.target.nodes[split], self.target.kind)
        else:
            for pairs in (self.target.positive, self.target.negative):
                for split in SPLITS:
                    for ids, kind in zip(
                        pairs[split].T, (self.target.source, self.target.destination), strict=True
                    ):
                        self._check_nodes(f"{split} pairs: node", ids, kind)
        for attribute in ("node_counts", "relations", "features"):
            value = MappingProxyType(dict(getattr(self, attribute)))
            object.__setattr__(self, attribute, value)

    def _check_relation(self, what: str, relation: Relation) -> None:
        source, destination, edges = relation
        if edges.ndim != 2 or len(edges) != 2:
            raise ValueError(f"{what}: expected edges (2, E), got {tuple(edges.shape)}")
        self._check_kinds(what, source, destination)
        require_ids(f"{what}: node", edges, self.num_nodes)
        if not self.mistyped:
            self._check_nodes(f"{what}: sending nodes", edges[0], source)
            self._check_nodes(f"{what}: receiving nodes", edges[1], destination)

    def _check_kinds(self, what: str, *kinds: str) -> None:
        for kind in kinds:
            if kind not in self.node_counts:
                raise ValueError(f"{what}: {kind!r} is not among {list(self.node_counts)}")

    def _check_nodes(self, what: str, ids: Tensor, kind: str) -> None:
        """Check that global ids are of nodes of one type."""
        self._check_kinds(what, kind)
        require_ids(what, ids, self.num_nodes)
        of_kind = self.slices[kind]
        if ids.numel() and (int(ids.min()) < of_kind.start or int(ids.max()) >= of_kind.stop):
            raise ValueError(
                f"{what}: expected ids of {kind!r}, {of_kind.start} to {of_kind.stop - 1}, got "
                f"{int(ids.min())} to {int(ids.max())}"
            )

    def _check_features(self, kind: str, features: Tensor) -> None:
        self._check_kinds("features", kind)
        if features.ndim != 2 or features.shape[0] != self.node_counts[kind]:
            raise ValueError(
                f"features of {kind!r}: expected a row for each of {self.node_counts[kind]} nodes, "
                f"got shape {tuple(features.shape)}"
            )
        values = features if features.layout == torch.strided else features.values()
        if not bool(values.isfinite().all()):
            raise ValueError(f"features of {kind!r} hold NaN or infinity")

    @property
    def num_nodes(self) -> int:
        """The number of nodes, of all types."""
        return sum(self.node_counts.values())

    @property
    def slices(self) -> dict[str, slice]:
        """Where the nodes of each type stand among the global ids."""
        return type_slices(self.node_counts)

    @property
    def metadata(self) -> dict[str, tuple[str, str]]:
        """The (source, destination) types of every relation, as `tensus_tn.nn` takes them."""
        return {name: (r.source, r.destination) for name, r in self.relations.items()}

    def graph(self, normalisation: Normalisation = "row") -> RelationGraph:
        """The relations for propagation, with the identity and the zero relation appended.

        `"diffmg"`: `D^-1 (A + I)` for every relation, `D^-1/2 (A + I) D^-1/2` for symmetric ones.
        `"row"`: `D^-1 A`. `"none"`: `A` itself. All are 0/1: repeated edges count once.
        """
        if normalisation not in get_args(Normalisation):
            raise ValueError(
                f"normalisation must be one of {get_args(Normalisation)}, got {normalisation!r}"
            )
        mode: dict[RelationKey, str | None] = dict.fromkeys(
            self.relations, None if normalisation == "none" else "row"
        )
        if normalisation == "diffmg":
            mode.update(dict.fromkeys(self.symmetric, "sym"))
        return RelationGraph.from_edge_index(
            {name: self._unique(relation.edges) for name, relation in self.relations.items()},
            self.num_nodes,
            normalize=mode,
            self_loops=normalisation == "diffmg",
            identity=True,
            zero=True,
        )

    def _unique(self, edges: Tensor) -> Tensor:
        row, col = edges.long()  # narrower integers would overflow
        code = (row * self.num_nodes + col).unique()
        return torch.stack([code // self.num_nodes, code % self.num_nodes])

    def inputs(self) -> dict[str, Tensor]:
        """Features of every node type, in order; an identity matrix for a type without any."""
        return {
            kind: self.features[kind] if kind in self.features else one_hot(count)
            for kind, count in self.node_counts.items()
        }

    def to_hetero_data(self) -> Any:
        """A PyG `HeteroData` with local ids, for PyG's own layers.

        Features are dense; a type without any has only `num_nodes`. Labels stand in `y` (-1 for
        none) with `train_mask` and so on; pairs are left to `target`.
        """
        from torch_geometric.data import HeteroData

        if self.mistyped:
            raise ValueError(f"relations of {self.name!r} contradict its node types: no local ids")
        data, slices = HeteroData(), self.slices
        for kind, ids in slices.items():
            data[kind].num_nodes = self.node_counts[kind]
            if kind in self.features:
                x = self.features[kind]
                data[kind].x = x if x.layout == torch.strided else x.to_dense()
            if isinstance(self.target, NodeLabels) and kind == self.target.kind:
                data[kind].y = self.target.labels[ids]
                for split, nodes in self.target.nodes.items():
                    mask = torch.zeros(self.num_nodes, dtype=torch.bool)
                    mask[nodes] = True
                    data[kind][f"{split}_mask"] = mask[ids]
        for name, (source, destination, edges) in self.relations.items():
            start = torch.tensor([[slices[source].start], [slices[destination].start]])
            data[source, name, destination].edge_index = edges - start
        return data

    def __repr__(self) -> str:
        types = ", ".join(f"{kind} {count}" for kind, count in self.node_counts.items())
        edges = ", ".join(f"{name} {r.edges.shape[1]}" for name, r in self.relations.items())
        return (
            f"Dataset({self.name}, {self.num_nodes} nodes: {types}; relations {edges}; "
            f"{self.target!r})"
        )


def _require_splits(splits: Mapping[Split, Tensor]) -> None:
    if set(splits) != set(SPLITS):
        raise ValueError(f"expected the splits {SPLITS}, got {tuple(splits)}")
    for split in SPLITS:
        if len(splits[split]) == 0:
            raise ValueError(f"the {split} split is empty")
