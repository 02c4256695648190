"""Our own `.npz` files: plain arrays, nothing in them is executed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from tensus_tn._files import open_arrays
from tensus_tn.data import catalogue
from tensus_tn.data.arrays import (
    Ids,
    block_counts,
    check_variant,
    split_features,
    whole_numbers,
)
from tensus_tn.data.dataset import Dataset, NodeLabels, Relation
from tensus_tn.data.recommendation import Bipartite, Pairs, make_dataset, split_pairs
from tensus_tn.data.typing import SPLITS, NodeTypes


def load_npz(
    path: str | os.PathLike[str],
    *,
    node_types: NodeTypes = "true",
    verify: bool = True,
    max_bytes: int | None = None,
) -> Dataset:
    """A data set of the paper from one of our `.npz` files.

    Args:
        path: The file.
        node_types: `"true"`, or `"diffmg"`: the blocks of nodes that DiffMG took for types. They
            differ on DBLP only, where DiffMG's are wrong: the first holds all authors and most papers.
        verify: Compare the checksums of the files that we know.
        max_bytes: The most memory that the arrays may take, checked before they are read; 16 times
            the size of the file, but at least 256 MiB, if None.

    Example:
        >>> load_npz("gtn_acm.npz")  # where there is none
        Traceback (most recent call last):
        FileNotFoundError: there is no gtn_acm.npz. The file comes from GTN's ACM, https://...
    """
    check_variant(node_types)
    file = catalogue.find(path)
    if verify:
        catalogue.verify(file)
    name = file.stem.removesuffix("_partial").rpartition("_")[2]
    with open_arrays(file, "a data set in our format", max_bytes) as arrays:
        if "labels" in arrays:
            return _classification(name, arrays, node_types)
        return _recommendation(name, arrays)


def _classification(name: str, arrays: Mapping[str, Any], node_types: NodeTypes) -> Dataset:
    kinds = arrays["node_type_names"].tolist()
    offsets = arrays["type_offsets"]
    true_counts = dict(zip(kinds, np.diff(offsets).tolist(), strict=True))
    relations = {}
    for key in arrays["relation_names"].tolist():
        row, col = _ids(arrays, f"rel_{key}_src"), _ids(arrays, f"rel_{key}_dst")
        source, destination = (kinds[arrays["node_type"][ids[0]]] for ids in (col, row))
        edges = torch.from_numpy(np.stack([col, row]))
        relations[key] = Relation(source, destination, edges)
    labels = torch.from_numpy(_ids(arrays, "labels"))
    nodes = {split: torch.from_numpy(_ids(arrays, f"{split}_idx")) for split in SPLITS}
    kind = kinds[arrays["node_type"][int(nodes["train"][0])]]
    target = NodeLabels(kind, labels, nodes, int(arrays["num_classes"]))
    counts = true_counts
    if node_types == "diffmg":
        counts = block_counts(arrays["diffmg_node_type"], kinds)
    parts = (arrays["feat_data"], arrays["feat_indices"], arrays["feat_indptr"])
    features = split_features(sp.csr_array(parts, shape=tuple(arrays["feat_shape"])), counts)
    mistyped = counts != true_counts
    return Dataset(name, counts, relations, target, features, mistyped=mistyped)


def _recommendation(name: str, arrays: Mapping[str, Any]) -> Dataset:
    kinds = arrays["node_type_names"].tolist()
    counts = {kind: int(arrays[f"num_{kind}"]) for kind in kinds}
    relations = {}
    for key, (first, second) in zip(
        arrays["relation_names"].tolist(), arrays["relation_types"].tolist(), strict=True
    ):
        edges = np.stack([_ids(arrays, f"rel_{key}_src"), _ids(arrays, f"rel_{key}_dst")], axis=1)
        relations[key] = Bipartite(first, second, edges)
    ratings = next(iter(relations))
    if "diffmg_keep_pairs" in arrays:
        positive, negative = (
            {split: _ids(arrays, f"diffmg_{side}_{split}") for split in SPLITS}
            for side in ("pos", "neg")
        )
        pairs = Pairs(_ids(arrays, "diffmg_keep_pairs"), positive, negative)
    else:
        liked = arrays[f"positive_{ratings}"].astype(bool)
        pairs = split_pairs(relations[ratings].pairs, liked, catalogue.KNOWN["douban"].seeds)
    return make_dataset(name, counts, relations, ratings, pairs)


def _ids(arrays: Mapping[str, Any], key: str) -> Ids:
    return whole_numbers(key, arrays[key])
