"""A data set by its name or path, read by whichever loader knows its format."""

from __future__ import annotations

import os
from typing import Any

from tensus_tn.data import catalogue
from tensus_tn.data.dataset import Dataset
from tensus_tn.data.gtn_diffmg import load_diffmg, load_gtn
from tensus_tn.data.herec import load_herec
from tensus_tn.data.hgb import load_hgb
from tensus_tn.data.npz import load_npz
from tensus_tn.data.planted_graph import planted


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
