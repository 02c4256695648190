"""What a graph says of its nodes before anything is learned: degrees, and a spectral embedding."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.linalg import svds
from torch import Tensor

from tensus_tn.data.dataset import Dataset, NodePairs


def log_degrees(data: Dataset) -> dict[str, Tensor]:
    """For every node type, `log(1 + degree)` in all relations of its nodes, standardised.

    Columns that say nothing new are left out: where all nodes of the type have the same degree, as in
    this example, and the other direction of a relation that was there.

    Example:
        >>> from tensus_tn.data import planted
        >>> {kind: tuple(x.shape) for kind, x in log_degrees(planted(num_nodes=50)).items()}
        {'s': (50, 0), 'm': (50, 0), 't': (50, 0)}
    """
    columns: dict[str, list[Tensor]] = {kind: [] for kind in data.node_counts}
    for relation in data.relations.values():
        ends = (relation.source, relation.destination)
        for kind, ids in zip(ends, relation.edges, strict=True):
            degree = ids.bincount(minlength=data.num_nodes)[data.slices[kind]]
            column = degree.float().log1p()
            new = not any(torch.equal(column, other) for other in columns[kind])
            if new and len(column) > 1 and float(column.std()) > 0.01:
                columns[kind].append(column)
    return {
        kind: torch.stack([(x - x.mean()) / x.std() for x in several], 1)
        if several
        else torch.zeros(data.node_counts[kind], 0)
        for kind, several in columns.items()
    }


def known_pairs(data: Dataset) -> Tensor:
    """The edges (2, E) between the two types of a data set's pairs: ids within them, each once.

    Those in either direction; the first row is of the type that pairs begin with.
    """
    source, target = _ends(data)
    first, second = data.slices[source], data.slices[target]
    found = [torch.zeros(2, 0, dtype=torch.long)]
    for relation in data.relations.values():
        if (relation.source, relation.destination) == (source, target):
            found.append(relation.edges.long())
        elif (relation.source, relation.destination) == (target, source):
            found.append(relation.edges.long().flip(0))
    start = torch.tensor([[first.start], [second.start]])
    edges: Tensor = (torch.cat(found, 1) - start).unique(dim=1)
    return edges


def spectral(data: Dataset, rank: int = 32) -> dict[str, Tensor]:
    r"""For both types of a data set's pairs, the singular vectors of the edges between them.

    Of `D^-1/2 K D^-1/2`, K (n, m) the edges; `U sqrt(S n)` and `V sqrt(S m)`, of the `rank` largest
    singular values, or as many as there are.

    Example:
        >>> from tensus_tn.data import Relation
        >>> buys = torch.tensor([[0, 1, 1, 2], [3, 3, 4, 4]])
        >>> pairs = dict.fromkeys(("train", "val", "test"), torch.tensor([[0, 4]]))
        >>> target = NodePairs("user", "item", pairs, pairs)
        >>> counts, relations = {"user": 3, "item": 2}, {"IU": Relation("user", "item", buys)}
        >>> {kind: x.shape for kind, x in spectral(Dataset("shop", counts, relations, target)).items()}
        {'user': torch.Size([3, 1]), 'item': torch.Size([2, 1])}
    """
    source, target = _ends(data)
    edges = known_pairs(data).numpy()
    shape = data.node_counts[source], data.node_counts[target]
    rank = min(rank, min(shape) - 1)
    if rank < 1 or edges.shape[1] == 0:
        return {source: torch.zeros(shape[0], 0), target: torch.zeros(shape[1], 0)}
    degrees = [
        np.maximum(np.bincount(ids, minlength=n), 1) for ids, n in zip(edges, shape, strict=True)
    ]
    values = (degrees[0][edges[0]] * degrees[1][edges[1]]) ** -0.5
    start = np.random.default_rng(0).standard_normal(min(shape))
    left, size, right = svds(sp.csr_array((values, edges), shape=shape), k=rank, v0=start)
    scaled = left * np.sqrt(size * shape[0]), right.T * np.sqrt(size * shape[1])
    vectors = (torch.from_numpy(np.ascontiguousarray(part)).float() for part in scaled)
    return dict(zip((source, target), vectors, strict=True))


def _ends(data: Dataset) -> tuple[str, str]:
    if not isinstance(data.target, NodePairs):
        raise TypeError(f"expected pairs to be predicted, {data.name!r} has {data.target}")
    return data.target.source, data.target.destination
