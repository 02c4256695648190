"""The `.dat` files of HERec: tab-separated ids that count from 1, one file for each relation."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tensus_tn.data import catalogue
from tensus_tn.data.arrays import Ids, whole_numbers
from tensus_tn.data.dataset import Dataset
from tensus_tn.data.recommendation import Bipartite, make_dataset, split_pairs

#: Two ids and, where there is one, a rating: floats, which hold every id that is admitted exactly.
Table = NDArray[np.float64]


def load_herec(
    folder: str | os.PathLike[str],
    *,
    name: str = "",
    ratings: str = "",
    seeds: tuple[int, int] | None = None,
) -> Dataset:
    r"""Recommendation from files `user_item.dat`, `item_brand.dat`, ..., split as DiffMG does.

    A line is an id of the first and one of the second type, and whatever follows; in the file of
    ratings the third number is a rating, and positive means more than 3. Of a repeated pair the
    first line counts. Positive pairs are DiffMG's own for Amazon, Yelp and Douban; the negative
    pairs are drawn in the same way, but are not the same.

    Args:
        folder: A folder with one file for each relation.
        name: The name of the data set; that of the folder if empty. Of a data set that we know, only
            the files of the paper are read; others may lie beside them.
        ratings: The file to be predicted, without `.dat`; needed if we don't know the data set.
        seeds: For the draws of positive and of negative pairs; DiffMG's, or (0, 0), if None.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> lines = [f"{u}\t{i}\t{1 + u * i % 5}" for u in range(1, 9) for i in range(1, 9)]
        >>> _ = (folder / "user_item.dat").write_text("\n".join(lines))
        >>> load_herec(folder, ratings="user_item").target
        NodePairs(user, item, train 7, val 2, test 3)
    """
    path = Path(folder)
    name = (name or path.resolve().name).lower().replace(" ", "_").removesuffix("_movie")
    known = catalogue.KNOWN.get(name)
    if known is not None:
        names = {f"{first}_{second}": key for key, (first, second) in known.relations.items()}
        rated = f"{known.relations[known.ratings][0]}_{known.relations[known.ratings][1]}"
        ratings, seeds = ratings or rated, seeds or known.seeds
    else:
        stems = sorted(file.stem for file in path.glob("*_*.dat"))
        names = {stem: stem for stem in stems if stem.count("_") == 1}
    if ratings not in names:
        raise ValueError(f"ratings must be one of the files {list(names)}, got {ratings!r}")
    columns = {stem: _read(catalogue.find(path / f"{stem}.dat")) for stem in names}
    relations: dict[str, Bipartite] = {}
    counts: dict[str, int] = {}
    for stem in [ratings, *(other for other in names if other != ratings)]:
        first, second = stem.split("_")
        relations[names[stem]] = Bipartite(first, second, _from_zero(columns[stem]))
        for kind, largest in zip((first, second), columns[stem].max(axis=0), strict=False):
            counts[kind] = max(counts.get(kind, 0), int(largest))
    if known is not None:
        relations = {key: relations[key] for key in known.relations}
        counts = {kind: max(counts.get(kind, 0), n) for kind, n in known.node_counts.items()}
    rated_pairs, rating = _sorted_ratings(columns[ratings], by_id=name in ("amazon", "douban"))
    pairs = split_pairs(rated_pairs, rating > 3, seeds or (0, 0))
    return make_dataset(name, counts, relations, names[ratings], pairs)


def _read(file: Path) -> Table:
    """Two ids, and a rating where there is one, from every line."""
    try:
        table = np.loadtxt(file, dtype=np.float64, ndmin=2)
    except ValueError as error:
        raise ValueError(f"{file}: expected lines of numbers, {error}") from error
    if table.size == 0 or table.shape[1] < 2:
        raise ValueError(f"{file}: expected lines with two ids or more, got shape {table.shape}")
    ids = whole_numbers(f"{file}: ids", table[:, :2])
    if ids.min() < 1:
        raise ValueError(f"{file}: ids count from 1, got {ids.min()}")
    return table[:, :3]


def _from_zero(table: Table) -> Ids:
    """The pairs of a table, counted from 0."""
    return table[:, :2].astype(np.int64) - 1


def _sorted_ratings(table: Table, by_id: bool) -> tuple[Ids, Table]:
    """Pairs that count from 0 and their ratings; in DiffMG's order, by ids for some data sets."""
    if table.shape[1] < 3:
        raise ValueError("the file of ratings has no third column")
    if np.isnan(table[:, 2]).any():
        raise ValueError("the file of ratings has NaN among its ratings")
    _, first = np.unique(table[:, :2], axis=0, return_index=True)
    table = table[first if by_id else np.sort(first)]
    return _from_zero(table), table[:, 2]
