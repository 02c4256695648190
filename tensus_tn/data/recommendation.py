"""DiffMG's preparation of rated pairs: what stays an edge, what is to be predicted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tensus_tn.data.arrays import Ids
from tensus_tn.data.dataset import Dataset, NodePairs, Relation
from tensus_tn.data.typing import SPLITS, Split
from tensus_tn.propagation.node_ids import type_slices


class Bipartite(NamedTuple):
    """A relation as its file has it: pairs (n, 2) of local ids, a `first` and a `second` node."""

    first: str
    second: str
    pairs: Ids


class Pairs(NamedTuple):
    """Local ids (n, 2): pairs that stay edges, and pairs to be predicted."""

    kept: Ids
    positive: Mapping[Split, Ids]
    negative: Mapping[Split, Ids]


def make_dataset(
    name: str,
    counts: Mapping[str, int],
    relations: Mapping[str, Bipartite],
    ratings: str,
    pairs: Pairs,
) -> Dataset:
    """Both directions of every relation, in DiffMG's order: those within a type first.

    A relation within a type is made symmetric. Of the ratings, only the pairs that are kept are edges.
    """
    start = {kind: ids.start for kind, ids in type_slices(counts).items()}
    within = {key: r for key, r in relations.items() if r.first == r.second}
    result = {}
    for key, relation in {**within, **relations}.items():
        edges = pairs.kept if key == ratings else relation.pairs
        here, there = edges[:, 0] + start[relation.first], edges[:, 1] + start[relation.second]
        ends = relation.second, relation.first
        if key in within:
            both = np.stack([np.append(there, here), np.append(here, there)])
            result[key] = Relation(*ends, torch.from_numpy(np.unique(both, axis=1)))
        else:
            result[key] = Relation(*ends, torch.from_numpy(np.stack([there, here])))
            result[reverse_name(key)] = Relation(
                *ends[::-1], torch.from_numpy(np.stack([here, there]))
            )
    source, target, _ = relations[ratings]
    shift = np.array([start[source], start[target]])
    positive, negative = (
        {split: torch.from_numpy(side[split] + shift) for split in SPLITS}
        for side in (pairs.positive, pairs.negative)
    )
    target_pairs = NodePairs(source, target, positive, negative)
    return Dataset(name, counts, result, target_pairs, symmetric=frozenset(within))


def split_pairs(pairs: Ids, positive: NDArray[np.bool_], seeds: tuple[int, int]) -> Pairs:
    """Half of the positive pairs stay edges; the others are cut 60 / 20 / 20 with as many negatives.

    Positives are drawn as DiffMG draws them, to the element. Negatives are the negative pairs,
    filled up with pairs that are not in the data if these are too few; their draw is our own.

    Args:
        pairs: Local ids (n, 2), all different.
        positive: Which of them are positive (n,).
        seeds: Two, for the draws of positive and of negative pairs.
    """
    random = np.random.RandomState(seeds[0])
    kept, hidden = np.array_split(random.permutation(np.flatnonzero(positive)), 2)
    random.shuffle(hidden)
    random = np.random.RandomState(seeds[1])
    low = random.permutation(pairs[~positive])[: len(hidden)]
    low = np.concatenate([low, _unrated(pairs, len(hidden) - len(low), random)])
    return Pairs(pairs[kept], _cut(pairs[hidden]), _cut(random.permutation(low)))


def _unrated(pairs: Ids, num: int, random: np.random.RandomState) -> Ids:
    """Different uniform pairs that are not among `pairs`."""
    sizes = pairs.max(axis=0) + 1
    rated = np.unique(pairs[:, 0] * sizes[1] + pairs[:, 1])
    free = int(sizes.prod()) - len(rated)
    if num > free:
        raise ValueError(
            f"{num} negative pairs are needed, but only {free} pairs are not in the data"
        )
    found = np.zeros(0, dtype=np.int64)
    while len(found) < num:
        drawn = random.randint(sizes.prod(), size=2 * num, dtype=np.int64)
        found = np.union1d(found, np.setdiff1d(drawn, rated))
    chosen = random.permutation(found)[:num]
    return np.stack([chosen // sizes[1], chosen % sizes[1]], axis=1)


def _cut(pairs: Ids) -> dict[Split, Ids]:
    ends = [int(0.6 * len(pairs)), int(0.8 * len(pairs))]
    return dict(zip(SPLITS, np.split(pairs, ends), strict=True))


def reverse_name(name: str) -> str:
    """`UCo` becomes `CoU`; names without two capital letters get a suffix."""
    parts = re.findall(r"[A-Z][a-z]*", name)
    return "".join(reversed(parts)) if len(parts) == 2 else f"{name} reversed"
