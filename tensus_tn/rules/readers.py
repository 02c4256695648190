"""Triples from files and objects of other libraries, as `KnowledgeGraph.from_triples` takes them."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

SPLITS = ("facts", "train", "valid", "test")
Arguments = dict[str, Any]


def read(path: Path) -> Arguments:
    """The triples of a folder, a text file or a `.npz` file; see `KnowledgeGraph.load`."""
    known = Path(os.environ.get("TENSUS_DATA", "data")) / f"kg_{path.name}.npz"
    if path.is_dir():
        return _read_folder(path)
    if path.exists():
        return _read_npz(path) if path.suffix == ".npz" else {"train": _read_text(path)}
    if known.exists():
        return _read_npz(known)
    raise FileNotFoundError(
        f"there is no {str(path)!r}, nor {str(known)!r} ($TENSUS_DATA is the folder of data sets)"
    )


def _read_folder(folder: Path) -> Arguments:
    files: dict[str, Path] = {}
    for split in SPLITS:
        for file in (folder / f"{split}.tsv", folder / f"{split}.txt"):
            if file.exists():
                if split in files:
                    raise ValueError(f"{folder} has both {files[split].name} and {file.name}")
                files[split] = file
    if "train" not in files:
        found = sorted(file.name for file in folder.iterdir())
        raise FileNotFoundError(f"{folder} has no train.txt (nor train.tsv), only {found}")
    return {split: _read_text(file) for split, file in files.items()}


def _read_text(file: Path) -> list[list[str]]:
    """Lines of three names between tabs, in UTF-8; empty lines do not count."""
    triples = []
    for number, line in enumerate(_lines(file), 1):
        columns = line.split("\t")
        if len(columns) == 3 and all(columns):
            triples.append(columns)
        elif line.strip():
            raise ValueError(
                f"{file}, line {number}: expected head, relation and tail between tabs, none empty, "
                f"got {len(columns)} columns: {line[:60]!r}"
            )
    if not triples:
        raise ValueError(f"{file} holds no triples")
    return triples


def _lines(file: Path) -> list[str]:
    try:
        text = file.read_text(encoding="utf-8-sig")  # some editors put a mark first
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not in UTF-8: {error}") from None
    return text.split("\n")  # not splitlines: names may hold other separators


def _read_npz(file: Path) -> Arguments:
    if not zipfile.is_zipfile(file):
        raise ValueError(f"{file} is no .npz file")
    with np.load(file, allow_pickle=False) as arrays:
        for name in ("train", "entity_names", "relation_names"):
            if name not in arrays:
                raise ValueError(f"{file} has no array {name!r}, only {sorted(arrays.files)}")
        try:
            triples = {split: arrays[split] for split in SPLITS if split in arrays}
            names = {"entities": arrays["entity_names"], "relations": arrays["relation_names"]}
        except ValueError as error:  # an array of Python objects
            raise ValueError(f"{file}: {error}") from None
        return {**triples, **{kind: array.tolist() for kind, array in names.items()}}


def from_pyg(train: Any, valid: Any, test: Any) -> Arguments:
    """See `KnowledgeGraph.from_pyg`."""
    data = _graph(train)
    size = getattr(data, "num_nodes", None)
    names = {} if size is None else {"entities": list(map(str, range(size)))}
    if valid is None and test is None:
        return {**_splits(data), **names}
    others = {"valid": valid, "test": test}
    given = {split: _graph(other) for split, other in others.items() if other is not None}
    return {"train": _triples(data), **{k: _triples(x) for k, x in given.items()}, **names}


def from_pykeen(train: Any, valid: Any, test: Any) -> Arguments:
    """See `KnowledgeGraph.from_pykeen`."""
    names = {kind: _names(train, f"{kind}_to_id") for kind in ("entity", "relation")}
    splits = {"train": train, "valid": valid, "test": test}
    given = {split: factory for split, factory in splits.items() if factory is not None}
    for split, factory in given.items():
        for kind, expected in names.items():
            if _names(factory, f"{kind}_to_id") != expected:
                raise ValueError(f"{split}: {kind}_to_id is not that of the training triples")
    return {
        **{split: _attribute(factory, "mapped_triples") for split, factory in given.items()},
        "entities": names["entity"],
        "relations": names["relation"],
    }


def _graph(dataset: Any) -> Any:
    """The one graph of a data set of PyG, or a graph itself."""
    return dataset[0] if hasattr(dataset, "processed_dir") else dataset


def _splits(data: Any) -> Arguments:
    """The splits that one graph holds: apart, as masks, or none."""
    if hasattr(data, "train_edge_index"):  # RelLinkPredDataset
        return {split: _triples(data, f"{split}_") for split in ("train", "valid", "test")}
    triples = _triples(data)
    if hasattr(data, "train_mask"):  # WordNet18RR
        masks = {"train": data.train_mask, "valid": data.val_mask, "test": data.test_mask}
        return {split: triples[mask] for split, mask in masks.items()}
    return {"train": triples}


def _triples(data: Any, prefix: str = "") -> Tensor:
    head, tail = _attribute(data, f"{prefix}edge_index")
    return torch.stack([head, _attribute(data, f"{prefix}edge_type"), tail], dim=1)


def _names(factory: Any, attribute: str) -> list[str]:
    ids: dict[str, int] = _attribute(factory, attribute)
    names = sorted(ids, key=ids.__getitem__)
    if [ids[name] for name in names] != list(range(len(names))):
        raise ValueError(f"{attribute}: expected the ids 0 to {len(names) - 1}, each once")
    return names


def _attribute(x: Any, name: str) -> Any:
    if not hasattr(x, name):
        raise TypeError(f"expected an object with the attribute {name}, got {type(x).__name__}")
    return getattr(x, name)
