"""The folders of GTN and DiffMG: pickles of adjacency matrices, features and labels."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from tensus_tn._files import open_arrays
from tensus_tn.data import catalogue
from tensus_tn.data.arrays import (
    block_counts,
    check_variant,
    split_features,
    whole_numbers,
)
from tensus_tn.data.dataset import Dataset, NodeLabels, NodePairs, Relation
from tensus_tn.data.pickles import load_arrays
from tensus_tn.data.recommendation import reverse_name
from tensus_tn.data.typing import SPLITS, NodeTypes
from tensus_tn.propagation.node_ids import require_ids, type_slices


def load_gtn(
    folder: str | os.PathLike[str],
    *,
    name: str = "",
    node_types: NodeTypes = "true",
    max_bytes: int | None = None,
) -> Dataset:
    """Node classification from `edges.pkl`, `node_features.pkl` and `labels.pkl` of GTN or DiffMG.

    Matrices have receiving nodes as rows. The files name neither relations nor node types; for
    DBLP, ACM and IMDB we know them. Otherwise relations are called `R0`, `R1`, ..., and node
    types `type0`, ... come from DiffMG's `node_types.npy`, or there is one.

    Args:
        folder: The folder of the files.
        name: The name of the data set; that of the folder if empty.
        node_types: `"true"`, or `"diffmg"` for the blocks of nodes that DiffMG took for types
            (`node_types.npy`); they differ on DBLP only, where DiffMG's are wrong.
        max_bytes: The most memory that a pickle's content may take; 16 times the size of the file,
            but at least 256 MiB, if None.

    Example:
        >>> import pickle, tempfile
        >>> import scipy.sparse as sp
        >>> folder = Path(tempfile.mkdtemp())
        >>> files = {"edges": [sp.eye_array(3, k=1).tocsr()], "node_features": np.eye(3)}
        >>> files["labels"] = [[[0, 1]], [[1, 0]], [[2, 1]]]
        >>> for name, value in files.items():
        ...     _ = (folder / f"{name}.pkl").write_bytes(pickle.dumps(value))
        >>> load_gtn(folder, name="small").target
        NodeLabels(node, 2 classes, train 1, val 1, test 1)
    """
    check_variant(node_types)
    path, types = Path(folder), Path(folder) / "node_types.npy"
    name = (name or path.resolve().name).lower()
    read = partial(load_arrays, max_bytes=max_bytes)
    edges = read(catalogue.find(path / "edges.pkl"))
    _check_matrices(path / "edges.pkl", edges if isinstance(edges, list) else [])
    num_nodes = edges[0].shape[0]
    known = catalogue.KNOWN.get(name)
    if known is not None and _fits(known, num_nodes, len(edges)):
        true_counts, names = known.node_counts, list(known.relations)
    else:
        known, names = None, [f"R{i}" for i in range(len(edges))]
        true_counts = _read_counts(types, None) if types.exists() else {"node": num_nodes}
    relations = _relations(dict(zip(names, edges, strict=True)), true_counts)
    counts = true_counts
    if node_types == "diffmg" and known is not None:
        counts = _read_counts(types, list(known.node_counts))
    features = split_features(read(catalogue.find(path / "node_features.pkl")), counts)
    labels = catalogue.find(path / "labels.pkl")
    target = _labels(labels, read(labels), true_counts, num_nodes)
    mistyped = counts != true_counts
    return Dataset(name, counts, relations, target, features, mistyped=mistyped)


def load_diffmg(
    folder: str | os.PathLike[str], *, name: str = "", max_bytes: int | None = None
) -> Dataset:
    """Recommendation from DiffMG's `adjs_offset.pkl`, `node_types.npy` and its `.npz` of pairs.

    `adjs_offset.pkl` holds the relation between users as `"0"` (where there is one), and others,
    in one direction, as `"1"`, `"2"`, ...; we name those of Amazon, Yelp and Douban.

    Args:
        folder: The folder of the files.
        name: The name of the data set; that of the folder if empty.
        max_bytes: As for `load_gtn`.

    Example:
        >>> load_diffmg("preprocessed/Yelp")  # where there is none
        Traceback (most recent call last):
        FileNotFoundError: there is no preprocessed/Yelp/adjs_offset.pkl...
    """
    path = Path(folder)
    name = (name or path.resolve().name).lower().removesuffix("_movie")
    known = catalogue.KNOWN.get(name)
    matrices = load_arrays(catalogue.find(path / "adjs_offset.pkl"), max_bytes=max_bytes)
    matrices = matrices if isinstance(matrices, dict) and all(map(_is_number, matrices)) else {}
    _check_matrices(path / "adjs_offset.pkl", list(matrices.values()))
    num_nodes = next(iter(matrices.values())).shape[0]
    if known is not None and not _fits(known, num_nodes, len(matrices)):
        known = None
    counts = _read_counts(
        path / "node_types.npy", None if known is None else list(known.node_counts)
    )
    order = sorted(matrices, key=int)
    names = [f"R{i}" for i in order] if known is None else list(known.relations)
    both, symmetric = {}, []
    for key, relation in zip(order, names, strict=True):
        both[relation] = matrices[key]
        if key == "0":
            symmetric.append(relation)
        else:
            both[reverse_name(relation)] = matrices[key].T
    pairs = []
    for file in ("pos_pairs_offset.npz", "neg_pairs_offset.npz"):
        with open_arrays(
            catalogue.find(path / file), "DiffMG's file of pairs", max_bytes
        ) as arrays:
            if not set(SPLITS) <= set(arrays):
                raise ValueError(f"{path / file}: expected {SPLITS}, got {list(arrays)}")
            ids = {s: whole_numbers(f"{path / file}: {s}", arrays[s]) for s in SPLITS}
            pairs.append({s: torch.from_numpy(part) for s, part in ids.items()})
    user, item = (_type_of(int(node), counts) for node in pairs[0]["train"][0])
    target = NodePairs(user, item, positive=pairs[0], negative=pairs[1])
    relations = _relations(both, counts)
    return Dataset(name, counts, relations, target, symmetric=frozenset(symmetric))


def _fits(known: catalogue.Source, num_nodes: int, num_relations: int) -> bool:
    """Whether these are the files of that data set, or others under its name."""
    return (sum(known.node_counts.values()), len(known.relations)) == (num_nodes, num_relations)


def _is_number(key: object) -> bool:
    return isinstance(key, str) and key.isdecimal()


def _check_matrices(file: Path, matrices: Sequence[Any]) -> None:
    shapes: set[tuple[int, ...]] = {m.shape if sp.issparse(m) else () for m in matrices}
    if len(shapes) != 1 or shapes == {()}:
        raise ValueError(f"{file}: expected sparse matrices over the same nodes, got {shapes}")
    rows, columns = shapes.pop()
    if rows != columns:
        raise ValueError(f"{file}: expected square matrices, got {rows} x {columns}")


def _relations(matrices: Mapping[str, Any], counts: Mapping[str, int]) -> dict[str, Relation]:
    relations = {}
    for name, matrix in matrices.items():
        row, col = matrix.nonzero()
        if len(row) == 0:
            raise ValueError(f"relation {name!r} has no edges")
        ends = _type_of(int(col[0]), counts), _type_of(int(row[0]), counts)
        for ids, end in zip((col, row), ends, strict=True):
            if {_type_of(int(node), counts) for node in (ids.min(), ids.max())} != {end}:
                raise ValueError(f"relation {name!r} joins nodes of more than two types")
        relations[name] = Relation(*ends, torch.from_numpy(np.stack([col, row]).astype(np.int64)))
    return relations


def _labels(file: Path, splits: Any, counts: Mapping[str, int], num_nodes: int) -> NodeLabels:
    """From three arrays (n, 2) of a node and its class."""
    splits = splits if isinstance(splits, (list, tuple, np.ndarray)) else []
    if len(splits) != len(SPLITS):
        raise ValueError(f"{file}: expected a list of {SPLITS}, got {len(splits)} arrays")
    labels = torch.full((num_nodes,), -1)
    nodes: list[Tensor] = []
    for split, part in zip(SPLITS, map(np.asarray, splits), strict=True):
        if part.ndim != 2 or part.shape[1] != 2:
            raise ValueError(
                f"{split} labels: expected (n, 2), a node and a class, got {part.shape}"
            )
        node, label = torch.from_numpy(whole_numbers(f"{split} labels", part)).T
        require_ids(f"{split} labels: node", node, num_nodes)
        labels[node] = label
        nodes.append(node)
    kind = _type_of(int(nodes[0][0]), counts)
    classes = int(labels.max()) + 1
    return NodeLabels(kind, labels, dict(zip(SPLITS, nodes, strict=True)), classes)


def _read_counts(file: Path, names: Sequence[str] | None) -> dict[str, int]:
    """The sizes of the node types from DiffMG's `node_types.npy`."""
    try:
        node_type = np.load(catalogue.find(file), allow_pickle=False)
    except (ValueError, EOFError, MemoryError) as error:
        raise ValueError(f"{file} is not an array of node types: {error}") from error
    return block_counts(node_type, names or [f"type{i}" for i in range(int(node_type.max()) + 1)])


def _type_of(node: int, counts: Mapping[str, int]) -> str:
    return next(kind for kind, ids in type_slices(counts).items() if ids.start <= node < ids.stop)
