"""GTN as its authors publish it, without its products of N x N matrices; at any rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import product

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensus_tn import Dag, DagTensor
from tensus_tn.data import Dataset, NodeLabels
from tensus_tn.nn.projection import Projection
from tensus_tn.nn.search import MetaGraphSearch, propagate_heads

CHANNELS = 2


class Gtn(nn.Module):
    """Graph transformer layers and one GCN layer over what they make, as in GTN's program.

    Each channel mixes the relations, without normalisation and with the identity, into one matrix
    for each step, and multiplies these to `P`, which is normalised after the product. In the GCN
    layer ones take the place of its diagonal, and rows are divided by their sums once more:

        H = diag(P 1)^-1 P,  B = H - diag(H) + I
        Y = ReLU(diag(B 1)^-1 B X W + b)

    All channels share `W` and `b`, which know no node types; one linear map of the channels side by
    side gives the classes. Of `P` only products with columns are needed, which is a propagation, and
    its diagonal, which is a weighted sum of diagonals that are known beforehand.

    The weights of a channel are those of a `DagTensor` over a path. Rank 1 is GTN; a higher one is
    TENSUS with its tensor train in the place of GTN's product.

    Args:
        data: With features of one size for all node types.
        steps: Matrices in a product, one more than GTN's layers.
        rank: Of the inner states.
        hidden: The size of `X W`.
    """

    def __init__(self, data: Dataset, steps: int, rank: int = 1, hidden: int = 64) -> None:
        super().__init__()
        assert isinstance(data.target, NodeLabels)
        dag, self.graph = Dag.path(steps), data.graph("none")
        matrices = self.graph.to_scipy()
        matrices.pop("zero")
        choices = dict.fromkeys(dag.edges, tuple(matrices))
        names = self.graph.relation_names
        self.channels = nn.ModuleList(
            MetaGraphSearch(dag, choices, names, rank, init_scale=0.01) for _ in range(CHANNELS)
        )
        self.diagonals = _diagonals(list(matrices.values()), steps)
        ids = data.slices[data.target.kind]
        self.rows = torch.arange(ids.start, ids.stop)
        self.project = Projection(next(iter(data.inputs().values())).shape[1], hidden, bias=False)
        nn.init.xavier_uniform_(self.project.weight)
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.classifier = nn.Linear(CHANNELS * hidden, data.target.num_classes)

    def forward(self, x: Mapping[str, Tensor], graph: object = None) -> Tensor:
        """Class scores of the target nodes; the graph is GTN's own."""
        h = F.pad(torch.cat([self.project(part) for part in x.values()]), (0, 1), value=1.0)
        channels = [c for c in self.channels if isinstance(c, MetaGraphSearch)]
        products = propagate_heads(channels, [h] * CHANNELS, self.graph, self.rows)
        states = []
        for channel, y in zip(channels, products, strict=True):
            sums = y[:, -1:]  # the identity keeps them from zero
            b = y / sums + (1 - self._diagonal(channel.tensor) / sums) * h[self.rows]
            states.append(F.relu(b[:, :-1] / b[:, -1:] + self.bias))
        scores: Tensor = self.classifier(torch.cat(states, 1))
        return scores

    def _diagonal(self, tensor: DagTensor) -> Tensor:
        """The diagonal (n, 1) of `P` at the target: the tensor weighs all products of relations."""
        return (tensor.to_dense().flatten() @ self.diagonals)[self.rows, None]


def _diagonals(matrices: Sequence[sp.csr_array], steps: int) -> Tensor:
    """The diagonals (C^steps, N) of all products, the matrix of the first step at the right."""
    rows = []
    for first, *others in product(matrices, repeat=steps):
        rest = reduce(lambda left, right: right @ left, others)
        rows.append(np.asarray(rest.multiply(first.T).sum(1)).ravel())
    return torch.from_numpy(np.stack(rows)).float()
