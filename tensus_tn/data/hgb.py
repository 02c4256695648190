"""The files of the Heterogeneous Graph Benchmark: `node.dat`, `link.dat`, `label.dat` and so on."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from tensus_tn.data.arrays import Ids, block_counts, sparse_or_dense
from tensus_tn.data.dataset import Dataset, NodeLabels, Relation
from tensus_tn.data.typing import Split
from tensus_tn.propagation.edge_lists import type_slices

#: Features are parsed so many rows at a time: a whole type as dense numbers may take gigabytes.
ROWS_AT_A_TIME = 512

#: The true labels of the test nodes, in the copies of the benchmark that have them.
TRUE_LABELS = "label.dat.test_full"


def load_hgb(
    folder: str | os.PathLike[str],
    *,
    name: str = "",
    seed: int = 0,
    val_share: float = 0.2,
    missing: Literal["one-hot", "none"] = "one-hot",
) -> Dataset:
    r"""Node classification from the files of the Heterogeneous Graph Benchmark (HGB).

    Lines are separated by tabs: `id name type features` in `node.dat`, `source target relation weight`
    in `link.dat`, `id name type labels` in `label.dat` (training) and `label.dat.test`. Names and
    weights are not read. Ids count from 0, and the nodes of a type are consecutive; a type has
    features, separated by commas, at all of its nodes or at none. Where a line of labels has
    several, separated by commas, classes do not exclude each other.

    Every relation also gets its reverse, unless another relation is just that. The benchmark trains
    on 24 % of the labels and validates on 6 %, drawn from `label.dat`, and tests on 70 %.

    Some public copies have random labels in `label.dat.test`, or none. If there is a file
    `label.dat.test_full`, the labels of the test nodes are taken from it; otherwise they are
    `doubtful`.

    Args:
        folder: With these files; `info.dat`, if it is there, gives types and relations their names.
        name: The name of the data set; that of the folder if empty.
        seed: For the draw of the validation nodes.
        val_share: The share of the labels in `label.dat` that is held out.
        missing: For types without features: nodes are told apart by their ids (`"one-hot"`), or
            are all alike (`"none"`).

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> nodes = [f"{i}\t\t0\t{i % 2},1" for i in range(10)] + ["10\t\t1", "11\t\t1"]
        >>> _ = (folder / "node.dat").write_text("\n".join(nodes))
        >>> links = [f"{i}\t{10 + i % 2}\t0\t1.0" for i in range(10)]
        >>> _ = (folder / "link.dat").write_text("\n".join(links))
        >>> for file, ids in (("label.dat", range(5)), ("label.dat.test", range(5, 10))):
        ...     _ = (folder / file).write_text("\n".join(f"{i}\t\t0\t{i % 2}" for i in ids))
        >>> load_hgb(folder, name="tiny")
        Dataset(tiny, 12 nodes: 0 10, 1 2; relations 0-1 10, 0-1 reversed 10;
            NodeLabels(0, 2 classes, train 4, val 1, test 5))
    """
    if not 0 < val_share < 1:
        raise ValueError(f"val_share must be between 0 and 1, got {val_share}")
    if missing not in ("one-hot", "none"):
        raise ValueError(f"missing must be 'one-hot' or 'none', got {missing!r}")
    path = Path(folder)
    names = _read_names(path / "info.dat")
    counts, features = _read_nodes(_file(path, "node.dat"), names.types)
    if missing == "none":
        alike = {kind: torch.ones(n, 1) for kind, n in counts.items() if kind not in features}
        features = {**features, **alike}
    relations = _with_reverses(_read_links(_file(path, "link.dat"), counts, names.relations))
    target = _read_target(path, counts, names.num_classes, seed, val_share)
    return Dataset(name or path.resolve().name, counts, relations, target, features)


def write_predictions(path: str | os.PathLike[str], data: Dataset, predicted: Tensor) -> None:
    r"""Classes of the test nodes as the benchmark takes them: lines `id`, nothing, type, classes.

    Args:
        path: The file.
        data: With labels, of one class or of several.
        predicted: Classes (n,) of the test nodes in the order of `data.target.nodes["test"]`; or
            (n, num_classes), true for those that a node is predicted to have.

    Example:
        >>> import tempfile
        >>> from tensus_tn.data import planted
        >>> data = planted(num_nodes=50)
        >>> file = Path(tempfile.mkdtemp()) / "planted.txt"
        >>> write_predictions(file, data, torch.zeros(13, dtype=torch.long))
        >>> file.read_text().partition("\n")[0].split("\t")[1:]
        ['', '2', '0']
    """
    if not isinstance(data.target, NodeLabels):
        raise TypeError(f"predictions are of labels, {data.name!r} has {data.target}")
    nodes, several = data.target.nodes["test"], data.target.multi_label
    shape = (len(nodes), data.target.num_classes) if several else (len(nodes),)
    if tuple(predicted.shape) != shape:
        raise ValueError(f"expected predictions of shape {shape}, got {tuple(predicted.shape)}")
    kind = list(data.node_counts).index(data.target.kind)
    rows = [row.nonzero().flatten().tolist() for row in predicted] if several else predicted
    lines = [
        f"{node}\t\t{kind}\t{','.join(map(str, row)) if several else int(row)}\n"
        for node, row in zip(nodes.tolist(), rows, strict=True)
    ]
    Path(path).write_text("".join(lines))


class Names(NamedTuple):
    """What `info.dat` says: the names of types and relations by their numbers; 0 classes: unknown."""

    types: Mapping[int, str]
    relations: Mapping[int, str]
    num_classes: int


def _read_names(file: Path) -> Names:
    """Of an `info.dat` in JSON; other forms of it, which are for human readers, give no names."""
    try:
        info = json.loads(file.read_text(encoding="utf-8"))
        types = {int(key): str(value) for key, value in info["node.dat"]["node type"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Names({}, {}, 0)
    if len(set(types.values())) < len(types):
        raise ValueError(f"{file}: two node types have the same name: {list(types.values())}")
    try:
        links = info["link.dat"]["link type"]
        relations = {int(key): str(value["meaning"]) for key, value in links.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        relations = {}
    try:
        (classes,) = info["label.dat"]["node type"].values()
        num_classes = len(classes) if set(map(int, classes)) == set(range(len(classes))) else 0
    except (ValueError, KeyError, TypeError, AttributeError):
        num_classes = 0
    return Names(types, relations, num_classes)


def _read_nodes(file: Path, names: Mapping[int, str]) -> tuple[dict[str, int], dict[str, Tensor]]:
    """The sizes of all types, and the features of those that have some."""
    ids: list[int] = []
    types: list[int] = []
    parsers: dict[int, _FeatureRows] = {}
    for number, (node, _, kind, *rest) in _fields(file, 3, 4, "id, name, type, features"):
        where = f"{file}, line {number}"
        ids.append(_whole(where, "id", node))
        types.append(_whole(where, "type", kind))
        if types[-1] not in parsers:
            parsers[types[-1]] = _FeatureRows(f"{file}: features of type {types[-1]}")
        parsers[types[-1]].add(where, rest[0] if rest else "")
    if not ids:
        raise ValueError(f"{file} has no nodes")
    if max(types) >= len({*names, *types}):
        raise ValueError(
            f"{file}: types must be 0, 1, 2, ...; got {max(types)}, and not all before it"
        )
    order, type_of = np.argsort(ids), np.array(types)
    _check_ids(file, np.array(ids)[order])
    kinds = [names.get(number, str(number)) for number in range(max(types) + 1)]
    try:
        counts = block_counts(type_of[order], kinds)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error
    features = {}
    for number in sorted(parsers):
        matrix = parsers[number].finish()
        if matrix is not None:
            by_id = np.argsort(np.array(ids)[type_of == number])
            features[kinds[number]] = sparse_or_dense(matrix[by_id])
    return counts, features


class _FeatureRows:
    """Collects lines of numbers into a sparse matrix, some at a time."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.lines: list[str] = []
        self.parts: list[sp.csr_array] = []
        self.without = ""  # where a node has no features

    def add(self, where: str, line: str) -> None:
        if not line:
            self.without = self.without or where
            return
        self.lines.append(line)
        if len(self.lines) == ROWS_AT_A_TIME:
            self._parse()

    def finish(self) -> sp.csr_array | None:
        """All rows, or None if there are none."""
        if self.lines:
            self._parse()
        if not self.parts:
            return None
        if self.without:
            raise ValueError(f"{self.what}: some nodes have none, see {self.without}")
        return sp.vstack(self.parts, format="csr")

    def _parse(self) -> None:
        try:
            rows = np.loadtxt(self.lines, np.float32, delimiter=",", comments=None, ndmin=2)
        except ValueError as error:
            raise ValueError(f"{self.what}: {error}") from error
        width = self.parts[0].shape[1] if self.parts else rows.shape[1]
        if rows.shape[1] != width:
            raise ValueError(f"{self.what}: {width} at first, then {rows.shape[1]}")
        self.parts.append(sp.csr_array(rows))
        self.lines = []


def _read_links(
    file: Path, counts: Mapping[str, int], names: Mapping[int, str]
) -> dict[str, Relation]:
    try:
        table = np.loadtxt(
            file, np.int64, delimiter="\t", comments=None, usecols=(0, 1, 2), ndmin=2
        )
    except ValueError as error:
        raise ValueError(
            f"{file}: expected lines of source, target, relation and weight: {error}"
        ) from error
    num_nodes = sum(counts.values())
    if len(table) and not (table[:, :2].min() >= 0 and table[:, :2].max() < num_nodes):
        raise ValueError(
            f"{file}: expected ids from 0 to {num_nodes - 1}, got {table[:, :2].min()} to "
            f"{table[:, :2].max()}"
        )
    if len(table) and table[:, 2].min() < 0:
        raise ValueError(f"{file}: expected relations 0, 1, ..., got {table[:, 2].min()}")
    numbers = np.unique(table[:, 2]).tolist()
    relations: dict[str, Relation] = {}
    for number in numbers:
        edges = table[table[:, 2] == number, :2].T
        source, target = (_type_of(f"{file}, relation {number}", row, counts) for row in edges)
        name = names.get(number, f"{source}-{target}")
        name = f"{name} {number}" if name in relations else name
        relations[name] = Relation(source, target, torch.from_numpy(edges.copy()))
    return relations


def _type_of(what: str, ids: Ids, counts: Mapping[str, int]) -> str:
    """The one node type of some nodes."""
    slices = type_slices(counts)
    kinds = [k for k, of in slices.items() if ((of.start <= ids) & (ids < of.stop)).any()]
    if len(kinds) != 1:
        raise ValueError(f"{what}: expected nodes of one type at either end, got {kinds}")
    return kinds[0]


def _with_reverses(relations: Mapping[str, Relation]) -> dict[str, Relation]:
    """All relations, each followed by its reverse unless one of them is that."""
    known = [relation.edges.unique(dim=1) for relation in relations.values()]
    result = {}
    for name, relation in relations.items():
        result[name] = relation
        back = relation.edges.flip(0)
        if not any(torch.equal(back.unique(dim=1), edges) for edges in known):
            result[f"{name} reversed"] = Relation(relation.destination, relation.source, back)
    return result


def _read_target(
    path: Path, counts: Mapping[str, int], num_classes: int, seed: int, val_share: float
) -> NodeLabels:
    num_nodes = sum(counts.values())
    learned = _read_labels(_file(path, "label.dat"), counts)
    tested = _read_labels(_file(path, "label.dat.test"), counts)
    if none := [node for node, labels in learned.items() if not labels]:
        raise ValueError(f"{path / 'label.dat'}: node {none[0]} has no label")
    if both := sorted(learned.keys() & tested.keys()):
        raise ValueError(f"{path}: node {both[0]} is in label.dat and in label.dat.test")
    if (path / TRUE_LABELS).exists():
        true = _read_labels(path / TRUE_LABELS, counts)
        if lost := [node for node in tested if node not in true]:
            raise ValueError(f"{path / TRUE_LABELS} lacks node {lost[0]} of label.dat.test")
        tested = {node: true[node] for node in tested}
    kind = _type_of(f"{path}: labels", np.array([*learned, *tested], dtype=np.int64), counts)
    every = [*learned.values(), *tested.values()]
    num_classes = _count_classes(path, every, num_classes)
    several = any(len(labels) > 1 for labels in every)
    # A copy without the true labels may leave out some: then all of them are unknown.
    if not all(tested.values()):
        tested = dict.fromkeys(tested, ())
    labels = _label_tensor({**learned, **tested}, num_nodes, num_classes, several)
    val, train = _draw(np.array(list(learned), dtype=np.int64), seed, val_share)
    test = np.array(list(tested), dtype=np.int64)
    nodes: dict[Split, Tensor] = {
        "train": torch.from_numpy(train),
        "val": torch.from_numpy(val),
        "test": torch.from_numpy(test),
    }
    return NodeLabels(kind, labels, nodes, num_classes, not (path / TRUE_LABELS).exists())


def _count_classes(path: Path, labels: Sequence[Sequence[int]], named: int) -> int:
    """As many as are named, or more where a label says so; a number beyond all labels is a mistake."""
    highest, count = max(max(several, default=0) for several in labels), sum(map(len, labels))
    if highest >= max(named, count):
        raise ValueError(f"{path}: class {highest}, but there are only {count} labels")
    return max(named, highest + 1)


def _read_labels(file: Path, counts: Mapping[str, int]) -> dict[int, tuple[int, ...]]:
    """The classes of every node in a file, in its order; none where the last field is empty."""
    labels: dict[int, tuple[int, ...]] = {}
    num_nodes, ids = sum(counts.values()), list(type_slices(counts).values())
    for number, (text, _, kind, *rest) in _fields(file, 3, 4, "id, name, type, labels"):
        where = f"{file}, line {number}"
        node, type_of = _whole(where, "id", text), _whole(where, "type", kind)
        if node >= num_nodes:
            raise ValueError(f"{where}: node {node}, but there are {num_nodes}")
        if not (type_of < len(ids) and ids[type_of].start <= node < ids[type_of].stop):
            raise ValueError(f"{where}: node {node} is not of type {type_of} in node.dat")
        if node in labels:
            raise ValueError(f"{where}: node {node} is there twice")
        classes = rest[0].split(",") if rest and rest[0] else []
        labels[node] = tuple(_whole(where, "label", label) for label in classes)
    if not labels:
        raise ValueError(f"{file} has no labels")
    return labels


def _label_tensor(
    labels: Mapping[int, Sequence[int]], num_nodes: int, num_classes: int, several: bool
) -> Tensor:
    """(N,) classes, or (N, num_classes) of 0 and 1 where there are several; -1 where unknown."""
    result = torch.full((num_nodes, num_classes) if several else (num_nodes,), -1)
    for node, classes in labels.items():
        if several and classes:
            result[node] = 0
            result[node, list(classes)] = 1
        elif classes:
            result[node] = classes[0]
    return result


def _draw(nodes: Ids, seed: int, share: float) -> tuple[Ids, Ids]:
    """A share of the nodes, at least one, and the others; both ascending."""
    order = np.random.default_rng(seed).permutation(nodes)
    cut = max(1, int(share * len(nodes)))
    return np.sort(order[:cut]), np.sort(order[cut:])


def _fields(file: Path, least: int, most: int, what: str) -> Iterator[tuple[int, list[str]]]:
    """The numbers of all lines that are not empty, and their fields."""
    try:
        with file.open(encoding="utf-8", newline="\n") as lines:
            for number, line in enumerate(lines, 1):
                text = line.rstrip("\r\n")
                fields = text.split("\t")
                if not text:
                    continue
                if not least <= len(fields) <= most:
                    raise ValueError(
                        f"{file}, line {number}: expected {what}, separated by tabs, got "
                        f"{len(fields)} fields: {text[:60]!r}"
                    )
                yield number, fields
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8 text: {error}") from error


def _whole(where: str, what: str, text: str) -> int:
    """A number in decimal digits."""
    if not (text.isascii() and text.strip().isdigit() and len(text) < 19):
        raise ValueError(f"{where}: expected a whole number as the {what}, got {text[:60]!r}")
    return int(text)


def _check_ids(file: Path, ids: Ids) -> None:
    """That sorted ids are 0, 1, 2, ..."""
    wrong = np.flatnonzero(ids != np.arange(len(ids)))
    if len(wrong):
        raise ValueError(
            f"{file}: ids must be 0, 1, 2, ..., each once; expected {wrong[0]}, got {ids[wrong[0]]}"
        )


def _file(folder: Path, name: str) -> Path:
    if not (folder / name).is_file():
        raise FileNotFoundError(f"there is no {folder / name}, which the benchmark's format has")
    return folder / name
