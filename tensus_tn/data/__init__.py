"""Data sets: loaders of our files and of the original ones, and a graph with a planted meta-graph."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tensus_tn.data import catalogue
from tensus_tn.data.dataset import Dataset, NodeLabels, NodePairs, Normalisation, Relation, Split
from tensus_tn.data.frameworks import from_dgl, from_hetero_data
from tensus_tn.data.gtn_diffmg import load_diffmg, load_gtn
from tensus_tn.data.herec import load_herec
from tensus_tn.data.hgb import load_hgb, write_predictions
from tensus_tn.data.npz import load_npz
from tensus_tn.data.planted_graph import PLANTED_PATHS, planted

__all__ = [
    "PLANTED_PATHS",
    "Dataset",
    "NodeLabels",
    "NodePairs",
    "Normalisation",
    "Relation",
    "Split",
    "from_dgl",
    "from_hetero_data",
    "has_pairs",
    "load",
    "load_diffmg",
    "load_gtn",
    "load_herec",
    "load_hgb",
    "load_npz",
    "planted",
    "write_predictions",
]


def has_pairs(source: str | os.PathLike[str]) -> bool:
    """Whether a source, as `load` takes it, is of pairs to be predicted, by its name and files alone.

    Example:
        >>> has_pairs("amazon"), has_pairs("dblp")
        (True, False)
    """
    path = Path(source)
    known = catalogue.KNOWN.get(str(source)) or catalogue.known_file(path)
    if known is not None:
        return bool(known.ratings)
    if not path.is_dir() or any((path / name).exists() for name in ("edges.pkl", "node.dat")):
        return False
    return (path / "adjs_offset.pkl").exists() or any(path.glob("*.dat"))


def load(source: str | os.PathLike[str], **options: Any) -> Dataset:
    """A data set by its name, or from a file or folder in any format that we know.

    Args:
        source: `"planted"`; `"dblp"`, `"acm"`, `"imdb"`, `"amazon"`, `"yelp"` or `"douban"`, whose
            file is looked for in `$TENSUS_DATA` or in `data`; or the path of a `.npz` file, or of
            a folder with the original files of GTN, DiffMG, HERec or HGB.
        options: Passed to the loader that reads it.

    Example:
        >>> load("planted", num_nodes=50).num_nodes
        150
    """
    if source == "planted":
        return planted(**options)
    if isinstance(source, str) and source in catalogue.KNOWN:
        source = catalogue.data_folder() / catalogue.KNOWN[source].file
    path = catalogue.find(source)
    if path.is_file():
        return load_npz(path, **options)
    if (path / "edges.pkl").exists():
        return load_gtn(path, **options)
    if (path / "adjs_offset.pkl").exists():
        return load_diffmg(path, **options)
    if (path / "node.dat").exists():
        return load_hgb(path, **options)
    if any(path.glob("*.dat")):
        return load_herec(path, **options)
    raise ValueError(
        f"{path} holds neither edges.pkl (GTN, DiffMG), adjs_offset.pkl (DiffMG) nor .dat files "
        "(HERec, HGB)"
    )
