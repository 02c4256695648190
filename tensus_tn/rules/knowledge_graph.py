"""A knowledge graph: triples of entities and relations, in splits, with their names."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from tensus_tn._arguments import check_memory

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
Triples = Tensor | np.ndarray | Iterable[Sequence[Any]]


@dataclass(frozen=True, eq=False, repr=False)
class KnowledgeGraph:
    """Triples `(head, relation, tail)` of ids, and the names behind the ids.

    The training triples are the graph that rules walk on. What is wrong is an error; what happens in
    published data is a warning with its count: repeated triples (they are dropped), a triple of one
    split in another, entities and relations that no training triple has.

    Attributes:
        train: (n, 3), the graph. Where a partition has `facts`, they are here, too.
        valid: (n, 3), to choose settings on; may be empty.
        test: (n, 3), to report on; may be empty.
        entities: The names of the entities, by id.
        relations: The names of the relations, by id.

    Example:
        >>> graph = KnowledgeGraph.from_triples([("ann", "mother", "bob"), ("bob", "father", "eve")])
        >>> graph
        KnowledgeGraph(3 entities, 2 relations; train 2, valid 0, test 0)
        >>> graph.train.tolist()
        [[0, 0, 1], [1, 1, 2]]
        >>> graph.relations
        ('mother', 'father')
    """

    train: Tensor
    valid: Tensor
    test: Tensor
    entities: tuple[str, ...]
    relations: tuple[str, ...]

    def __post_init__(self) -> None:
        for kind, names in (("entity", self.entities), ("relation", self.relations)):
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise ValueError(f"two ids have the {kind} name {twice!r}")
        if self.num_entities**2 * 2 * self.num_relations >= 2**63:
            raise ValueError(
                f"{self.num_entities} entities and {self.num_relations} relations have more triples "
                "than a 64-bit integer can number"
            )
        for split in SPLITS:
            triples = self._check(split, getattr(self, split))
            object.__setattr__(self, split, self._without_repetitions(split, triples))
        if not len(self.train):
            raise ValueError("there are no training triples: nothing to walk on, nothing to learn")
        self._warn_about_overlap()
        self._warn_about_unknown()

    @classmethod
    def from_triples(
        cls,
        train: Triples,
        valid: Triples = (),
        test: Triples = (),
        *,
        facts: Triples = (),
        entities: Sequence[str] | None = None,
        relations: Sequence[str] | None = None,
    ) -> KnowledgeGraph:
        """A graph from triples of ids, as arrays `(n, 3)`, or of names.

        Args:
            train: Triples `(head, relation, tail)`.
            valid: The same, to choose settings on.
            test: The same, to report on.
            facts: Further training triples, as the partitions of Neural-LP and DRUM have them.
            entities: Their names, by id. Without them: ids get their number as a name; names get ids
                in the order in which they appear.
            relations: The same for the relations.

        Example:
            >>> graph = KnowledgeGraph.from_triples([(0, 0, 1), (1, 0, 2)], relations=["next"])
            >>> graph.entities, graph.relations
            (('0', '1', '2'), ('next',))
        """
        given = {"facts": facts, "train": train, "valid": valid, "test": test}
        rows = {name: _rows(name, triples) for name, triples in given.items()}
        kinds = {array.dtype.kind for array in rows.values() if len(array)}
        if len(kinds) > 1:
            raise TypeError("expected ids in all triples, or names in all of them, got both")
        entity_ids, relation_ids = _Ids("entity", entities), _Ids("relation", relations)
        ids = {
            name: np.stack(
                [
                    entity_ids.of(array[:, 0]),
                    relation_ids.of(array[:, 1]),
                    entity_ids.of(array[:, 2]),
                ],
                axis=1,
            )
            for name, array in rows.items()
        }
        graph = np.concatenate([ids["facts"], ids["train"]])
        train_, valid_, test_ = (torch.from_numpy(x) for x in (graph, ids["valid"], ids["test"]))
        return cls(train_, valid_, test_, entity_ids.names(), relation_ids.names())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> KnowledgeGraph:
        """A graph from a folder or file of tab-separated triples, or from a `.npz` file.

        A folder has `train.txt` and may have `facts.txt`, `valid.txt` and `test.txt` (or the same
        with `.tsv`), each line `head <tab> relation <tab> tail`; a single file is all training. A
        `.npz` file has arrays of the names of the splits, `entity_names` and `relation_names`. A
        name like `umls` stands for `kg_umls.npz` in the folder `$TENSUS_DATA`.

        Example:
            >>> KnowledgeGraph.load("no such file")
            Traceback (most recent call last):
            FileNotFoundError: there is no 'no such file', nor ...
        """
        from tensus_tn.rules import readers

        return cls.from_triples(**readers.read(Path(path)))

    @classmethod
    def from_pyg(cls, train: Any, valid: Any = None, test: Any = None) -> KnowledgeGraph:
        """A graph from PyG's data sets of triples, read by their attributes.

        Args:
            train: `RelLinkPredDataset` or `WordNet18RR`, which hold all splits, or the training
                split of `FB15k_237`; a data set of one graph, or its `Data`.
            valid: The validation split, where it is a data set of its own.
            test: The same for the test split.

        Example:
            >>> from types import SimpleNamespace
            >>> data = SimpleNamespace(edge_index=torch.tensor([[0], [1]]), edge_type=torch.tensor([0]))
            >>> KnowledgeGraph.from_pyg(data)
            KnowledgeGraph(2 entities, 1 relations; train 1, valid 0, test 0)
        """
        from tensus_tn.rules import readers

        return cls.from_triples(**readers.from_pyg(train, valid, test))

    @classmethod
    def from_pykeen(cls, train: Any, valid: Any = None, test: Any = None) -> KnowledgeGraph:
        """A graph from pykeen's `TriplesFactory` objects, read by their attributes.

        The names and ids are those of the training triples; those of the others must be the same.

        Example:
            >>> from types import SimpleNamespace
            >>> ids = {"entity_to_id": {"a": 0, "b": 1}, "relation_to_id": {"r": 0}}
            >>> factory = SimpleNamespace(mapped_triples=torch.tensor([[0, 0, 1]]), **ids)
            >>> KnowledgeGraph.from_pykeen(factory).entities
            ('a', 'b')
        """
        from tensus_tn.rules import readers

        return cls.from_triples(**readers.from_pykeen(train, valid, test))

    @property
    def num_entities(self) -> int:
        """How many entities there are."""
        return len(self.entities)

    @property
    def num_relations(self) -> int:
        """How many relations there are, inverses not counted."""
        return len(self.relations)

    @property
    def known(self) -> Tensor:
        """The triples of all splits (n, 3): what a filtered ranking leaves out."""
        return torch.cat([self.train, self.valid, self.test])

    def with_relations(self, relations: Sequence[str]) -> KnowledgeGraph:
        """The same triples, with the relations of another graph, in its order; it may have more.

        So a model that was learned on the other graph can be used on this one.

        Example:
            >>> graph = KnowledgeGraph.from_triples([("ann", "mother", "bob")])
            >>> graph.with_relations(["father", "mother"]).train.tolist()
            [[0, 1, 1]]
        """
        number = {name: k for k, name in enumerate(relations)}
        unknown = [name for name in self.relations if name not in number]
        if unknown:
            raise ValueError(f"{len(unknown)} relations are not among those given: {unknown[:3]}")
        to = torch.tensor([number[name] for name in self.relations])
        train, valid, test = (
            torch.stack([triples[:, 0], to[triples[:, 1]], triples[:, 2]], dim=1)
            for triples in (self.train, self.valid, self.test)
        )
        return KnowledgeGraph(train, valid, test, self.entities, tuple(relations))

    def entity(self, name: str | int) -> int:
        """The id of an entity, given its name or its id."""
        return _find("entity", name, self.entities, self._entity_ids)

    def relation(self, name: str | int) -> int:
        """The id of a relation, given its name or its id.

        Example:
            >>> KnowledgeGraph.from_triples([("a", "r", "b")]).relation("s")
            Traceback (most recent call last):
            ValueError: there is no relation 's' among 1: 'r'
        """
        return _find("relation", name, self.relations, self._relation_ids)

    @cached_property
    def _entity_ids(self) -> dict[str, int]:
        return {name: k for k, name in enumerate(self.entities)}

    @cached_property
    def _relation_ids(self) -> dict[str, int]:
        return {name: k for k, name in enumerate(self.relations)}

    def __repr__(self) -> str:
        sizes = ", ".join(f"{split} {len(getattr(self, split))}" for split in SPLITS)
        return (
            f"KnowledgeGraph({self.num_entities} entities, {self.num_relations} relations; {sizes})"
        )

    def _check(self, split: str, triples: Tensor) -> Tensor:
        if not isinstance(triples, Tensor) or triples.is_floating_point():
            raise TypeError(f"{split}: expected a tensor of ids, got {_kind(triples)}")
        if triples.ndim != 2 or triples.shape[1] != 3:
            raise ValueError(f"{split}: expected triples (n, 3), got {tuple(triples.shape)}")
        sizes = (self.num_entities, self.num_relations, self.num_entities)
        for column, size, kind in zip(triples.T, sizes, ("head", "relation", "tail"), strict=True):
            if len(column) and not 0 <= int(column.min()) <= int(column.max()) < size:
                raise ValueError(
                    f"{split}: expected ids of a {kind} from 0 to {size - 1}, got "
                    f"{int(column.min())} to {int(column.max())}"
                )
        return triples.long()

    def _keys(self, triples: Tensor) -> Tensor:
        """A number for each triple, (n,): equal for equal triples."""
        head, relation, tail = triples.T
        keys: Tensor = (head * self.num_relations + relation) * self.num_entities + tail
        return keys

    def _without_repetitions(self, split: str, triples: Tensor) -> Tensor:
        """Triples in their order, each once."""
        _, first = np.unique(self._keys(triples).numpy(), return_index=True)
        if len(first) == len(triples):
            return triples
        _warn(f"{len(triples) - len(first)} repeated triples of {split} are dropped")
        return triples[torch.from_numpy(np.sort(first))]

    def _warn_about_overlap(self) -> None:
        """Splits that contradict each other: scores on such triples mean little."""
        for first, second in (("train", "valid"), ("train", "test"), ("valid", "test")):
            known = torch.isin(self._keys(getattr(self, second)), self._keys(getattr(self, first)))
            if shared := int(known.sum()):
                _warn(f"{shared} triples of {second} are in {first} as well: their answer is given")

    def _warn_about_unknown(self) -> None:
        entities = self.train[:, [0, 2]].unique()
        relations = self.train[:, 1].unique()
        for split in ("valid", "test"):
            triples: Tensor = getattr(self, split)
            strange = ~torch.isin(triples[:, [0, 2]], entities).all(1)
            if strange.any():
                _warn(
                    f"{int(strange.sum())} of {len(triples)} {split} triples have an entity that no "
                    "training triple has: no rule reaches it"
                )
            untrained = triples[~torch.isin(triples[:, 1], relations), 1].unique().tolist()
            if untrained:
                names = ", ".join(repr(self.relations[r]) for r in untrained[:3])
                _warn(
                    f"{len(untrained)} relations of {split} have no training triples ({names}"
                    f"{', ...' if len(untrained) > 3 else ''}): nothing is learned about them"
                )


class _Ids:
    """Numbers for names; or the names of numbers, where those are given."""

    def __init__(self, kind: str, names: Sequence[str] | None) -> None:
        self.kind = kind
        self.given = None if names is None else tuple(map(str, names))
        self.number = {name: k for k, name in enumerate(self.given or ())}
        self.highest = -1

    def of(self, column: np.ndarray) -> np.ndarray:
        if column.dtype.kind != "U":
            self.highest = max(self.highest, int(column.max(initial=-1)))
            return column.astype(np.int64)
        if self.given is None:
            for name in column.tolist():
                self.number.setdefault(name, len(self.number))
        unknown = next((name for name in column.tolist() if name not in self.number), None)
        if unknown is not None:
            raise ValueError(f"{unknown!r} is not among the {self.kind} names that were given")
        return np.array([self.number[name] for name in column.tolist()], dtype=np.int64)

    def names(self) -> tuple[str, ...]:
        if self.given or self.number:
            return self.given or tuple(self.number)
        check_memory(f"{self.kind} names", self.highest + 1, 64)
        return tuple(map(str, range(self.highest + 1)))


def _rows(name: str, triples: Triples) -> np.ndarray:
    """Triples as an array (n, 3) of integers or of strings."""
    if isinstance(triples, Tensor):
        triples = triples.detach().cpu().numpy()
    if not isinstance(triples, np.ndarray):
        triples = list(triples)
        for row in triples:
            if isinstance(row, str) or len(row) != 3:
                raise ValueError(f"{name}: expected triples (head, relation, tail), got {row!r}")
        names = [isinstance(x, str) for row in triples for x in row]
        if any(names) and not all(names):
            raise TypeError(f"{name}: expected ids in all triples, or names in all, got both")
        triples = np.array(triples) if triples else np.empty((0, 3), np.int64)
    if triples.ndim != 2 or triples.shape[1] != 3:
        raise ValueError(f"{name}: expected triples (n, 3), got the shape {triples.shape}")
    if triples.dtype.kind not in "iuU":
        raise TypeError(f"{name}: expected ids or names, got {triples.dtype}")
    return triples


def as_triples(triples: Any, graph: KnowledgeGraph) -> Tensor:
    """Triples (n, 3) of ids, given as ids or names.

    Example:
        >>> as_triples([("b", "r", 0)], KnowledgeGraph.from_triples([("a", "r", "b")]))
        tensor([[1, 0, 0]])
    """
    if isinstance(triples, Tensor):
        return graph._check("triples", triples)
    if wrong := [t for t in triples if isinstance(t, str) or len(t) != 3]:
        raise ValueError(f"expected triples (head, relation, tail), got {wrong[0]!r}")
    rows = [(graph.entity(h), graph.relation(r), graph.entity(t)) for h, r, t in triples]
    return torch.tensor(rows, dtype=torch.long).reshape(-1, 3)


def _find(kind: str, name: str | int, names: tuple[str, ...], ids: dict[str, int]) -> int:
    if isinstance(name, str) and name in ids:
        return ids[name]
    if not isinstance(name, str) and 0 <= int(name) < len(names):
        return int(name)
    shown = ", ".join(map(repr, names[:5])) + (", ..." if len(names) > 5 else "")
    raise ValueError(f"there is no {kind} {name!r} among {len(names)}: {shown}")


def _kind(x: Any) -> str:
    return f"one of {x.dtype}" if isinstance(x, Tensor) else type(x).__name__


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=5)
