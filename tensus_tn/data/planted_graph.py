"""A graph whose labels need two relations to be chosen jointly: rank 2 can, rank 1 can't."""

from __future__ import annotations

import torch
from torch import Tensor

from tensus_tn._arguments import check_size
from tensus_tn.data.dataset import Dataset, NodeLabels, Relation
from tensus_tn.data.typing import SPLITS
from tensus_tn.propagation.node_ids import type_slices

#: The meta-graph behind the labels, as two paths of relations: s -A-> m -B-> t and s -C-> m -D-> t.
PLANTED_PATHS = (("A", "B"), ("C", "D"))


def planted(
    num_nodes: int = 3000, *, degree: int = 2, num_features: int = 4, seed: int = 0
) -> Dataset:
    """Nodes `t` are to be classified by `sign(u . (B A + D C) x)`: by two paths, mixed.

    Nodes `s` have Gaussian features `x`, of which one hidden direction `u` counts. They send to `m`
    by relation A or C, and `m` to `t` by B or D; `m` and `t` have no features of their own. So four
    paths of two links lead to `t`: AB and CD, which make the label, and AD and CB, which are noise
    of the same size, independent of it (up to the few nodes that two paths share).

    No rank-1 meta-graph over a path of two links gets beyond an accuracy of 3/4; rank 2 can reach 1:
        1. Rank 1 weighs the paths by a product: t = ab AB + ad AD + cb CB + cd CD.
        2. Its correlation with s = AB + CD is (ab + cd) / (sqrt 2 |(a, c)| |(b, d)|), which is
           at most 1 / sqrt 2 by Cauchy-Schwarz, for all weights, positive or not.
        3. Both are Gaussian, so whatever is computed from t has accuracy at most
           1/2 + arcsin(1 / sqrt 2) / pi = 3/4. Rank 2 has A and B in one state, C and D in the other.

    Args:
        num_nodes: How many nodes each of the three types has.
        degree: Senders of every receiving node in every relation.
        num_features: The width of `x`.
        seed: For the graph, the features and the split (a half, a quarter, the rest).

    Example:
        >>> from tensus_tn.data import planted
        >>> planted(num_nodes=50).metadata
        {'A': ('s', 'm'), 'C': ('s', 'm'), 'B': ('m', 't'), 'D': ('m', 't')}
    """
    check_size("degree", degree)
    generator = torch.Generator().manual_seed(seed)
    counts = dict.fromkeys(("s", "m", "t"), num_nodes)
    slices = type_slices(counts)
    ends = {"A": ("s", "m"), "C": ("s", "m"), "B": ("m", "t"), "D": ("m", "t")}
    senders = {
        name: torch.stack([torch.randperm(num_nodes, generator=generator) for _ in range(degree)])
        for name in ends
    }
    x = torch.randn(num_nodes, num_features, generator=generator)
    direction = torch.randn(num_features, generator=generator)
    (a, b), (c, d) = ([senders[name] for name in path] for path in PLANTED_PATHS)
    score = _path_means(x @ direction, a, b) + _path_means(x @ direction, c, d)
    receivers = torch.arange(num_nodes).repeat(degree)
    relations = {
        name: Relation(
            source,
            destination,
            torch.stack(
                [
                    senders[name].flatten() + slices[source].start,
                    receivers + slices[destination].start,
                ]
            ),
        )
        for name, (source, destination) in ends.items()
    }
    labels = torch.full((3 * num_nodes,), -1)
    labels[slices["t"]] = (score > 0).long()
    order = torch.randperm(num_nodes, generator=generator) + slices["t"].start
    parts = order.tensor_split([num_nodes // 2, num_nodes // 2 + num_nodes // 4])
    target = NodeLabels("t", labels, dict(zip(SPLITS, parts, strict=True)), 2)
    nothing = torch.zeros(num_nodes, 1)
    return Dataset("planted", counts, relations, target, {"s": x, "m": nothing, "t": nothing})


def _path_means(value: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Mean over a path of two relations; their senders are (degree, N)."""
    return value[first].mean(0)[second].mean(0)
