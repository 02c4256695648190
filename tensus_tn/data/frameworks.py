"""Graphs of PyG and DGL as data sets; both are read by their attributes, nothing is imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tensus_tn.data.dataset import Dataset, NodeLabels, Relation
from tensus_tn.data.typing import SPLITS, Split
from tensus_tn.propagation.edge_lists import dgl_parts, hetero_data_parts
from tensus_tn.propagation.node_ids import type_slices


def from_hetero_data(data: Any, target: str, *, name: str = "hetero_data") -> Dataset:
    """Node classification on a PyG `HeteroData`: `x` of every type, `y` and masks of the target type.

    A data set's relations are 0/1, so an `edge_weight` other than 1 is refused: delete it, or build
    the graph yourself by `RelationGraph.from_hetero_data`, which uses it. `edge_attr` is not read.

    Example:
        >>> from tensus_tn.data import from_hetero_data, planted
        >>> data = planted(num_nodes=50).to_hetero_data()
        >>> from_hetero_data(data, "t").target
        NodeLabels(t, 2 classes, train 25, val 12, test 13)
    """
    index, counts, weights = hetero_data_parts(data)
    for kind, weight in weights.items():
        if not bool((weight == 1).all()):
            raise ValueError(
                f"edge type {kind!r} has an edge_weight, but a data set's relations are 0/1: delete "
                "it, or use RelationGraph.from_hetero_data"
            )
    features = {kind: data[kind].x for kind in counts if "x" in data[kind]}
    for key in ("y", *(f"{split}_mask" for split in SPLITS)):
        if target not in counts or key not in data[target]:
            raise ValueError(f"expected {key!r} on the nodes of {target!r}")
    masks: dict[Split, Tensor] = {split: data[target][f"{split}_mask"] for split in SPLITS}
    return _dataset(name, counts, index, features, target, data[target].y, masks)


def from_dgl(
    graph: Any, target: str, *, feature: str = "feat", label: str = "label", name: str = "dgl"
) -> Dataset:
    """Node classification on a DGL graph: node data `feature` of every type, `label` and masks.

    The masks of the target type are called `train_mask`, `val_mask` and `test_mask`, as in DGL's
    own data sets. Edge data are not read: a data set's relations are 0/1.
    """
    index, counts = dgl_parts(graph)
    node_data = {kind: graph.nodes[kind].data for kind in counts}
    features = {kind: data[feature] for kind, data in node_data.items() if feature in data}
    for key in (label, *(f"{split}_mask" for split in SPLITS)):
        if key not in node_data.get(target, {}):
            raise ValueError(f"expected {key!r} on the nodes of {target!r}")
    masks: dict[Split, Tensor] = {split: node_data[target][f"{split}_mask"] for split in SPLITS}
    return _dataset(name, counts, index, features, target, node_data[target][label], masks)


def _dataset(
    name: str,
    counts: Mapping[str, int],
    index: Mapping[Any, Tensor],
    features: Mapping[str, Tensor],
    target: str,
    y: Tensor,
    masks: Mapping[Split, Tensor],
) -> Dataset:
    if y.ndim != 1 or y.is_floating_point():
        raise ValueError(f"expected a class for each {target!r}, got {y.dtype} {tuple(y.shape)}")
    for split, mask in masks.items():
        if mask.shape != y.shape or mask.dtype not in (torch.bool, torch.uint8):
            raise ValueError(
                f"expected a {split} mask of {len(y)} booleans, got {mask.dtype} {tuple(mask.shape)}"
            )
    slices = type_slices(counts)
    names = [key[1] for key in index]
    relations = {}
    for key, edges in index.items():
        source, short, destination = key
        start = torch.tensor([[slices[source].start], [slices[destination].start]])
        full = short if names.count(short) == 1 else "__".join(key)
        relations[full] = Relation(source, destination, edges + start)
    labels = torch.full((sum(counts.values()),), -1)
    labels[slices[target]] = y.long()
    start = slices[target].start
    nodes = {split: mask.bool().nonzero().squeeze(1) + start for split, mask in masks.items()}
    labelled = NodeLabels(target, labels, nodes, int(y.max()) + 1)
    dense = {kind: x.float() for kind, x in features.items()}
    return Dataset(name, counts, relations, labelled, dense)
