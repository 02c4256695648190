"""MAGNN in small: attention over instances of meta-paths, then over the meta-paths."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensus_tn.data import Dataset

HEADS = 8
INSTANCES = 16  # of each node on each meta-path
ATTENTION = 64  # the size of what meta-paths are weighed by


class Magnn(nn.Module):
    """One layer of MAGNN for the target type, with the mean as the encoder of an instance.

    For a node `v` with instances `p` of the meta-path `P`, which are drawn once, and heads `k`:

        e_k(p) = LeakyReLU(a_k . [h_v, mean of h over p]),  alpha_k = softmax of e_k over p
        h_v^P  = ELU(sum_p alpha_k(p) mean(p)) of all heads, side by side
        b_P    = softmax over P of q . mean_v tanh(M h_v^P + c)
        out    = ELU(W sum_P b_P h_v^P)

    Args:
        data: All nodes of the target type get a state.
        paths: Names of relations, each path from the target type and back to it.
        size: Of `h` and of the output.
    """

    def __init__(self, data: Dataset, paths: Sequence[Sequence[str]], size: int) -> None:
        super().__init__()
        self.kind = data.metadata[paths[0][0]][0]
        self.instances = [draw_instances(data, path, INSTANCES) for path in paths]
        self.attention = nn.ParameterList(_glorot(HEADS, 2, size) for _ in paths)
        self.weigh = nn.Linear(HEADS * size, ATTENTION)
        self.query = _glorot(1, ATTENTION)
        self.out = nn.Linear(HEADS * size, size)

    def forward(self, parts: dict[str, Tensor]) -> dict[str, Tensor]:
        """The states {target type: (n, size)} from those of all types."""
        h = torch.cat(list(parts.values()))
        along = torch.stack([
            self._attend(h, parts[self.kind], instances, vectors)
            for instances, vectors in zip(self.instances, self.attention, strict=True)
        ])  # (paths, n, heads * size) # fmt: skip
        weights = (torch.tanh(self.weigh(along)).mean(1) @ self.query.T).softmax(0)
        return {self.kind: F.elu(self.out((weights[:, None] * along).sum(0)))}

    def _attend(self, h: Tensor, own: Tensor, instances: Tensor, vectors: Tensor) -> Tensor:
        """(n, heads * size): the instances (n, S, nodes) of every node, weighed by each head."""
        n, several, _ = instances.shape
        means = F.embedding_bag(instances.flatten(0, 1), h, mode="mean").view(n, several, -1)
        scores = (own @ vectors[:, 0].T)[:, None] + means @ vectors[:, 1].T
        alpha = F.leaky_relu(scores, 0.2).softmax(1)
        return F.elu(torch.einsum("nsk,nsf->nkf", alpha, means)).flatten(1)


def draw_instances(data: Dataset, path: Sequence[str], num: int) -> Tensor:
    """Ids (n, num, len(path) + 1) of the nodes on instances that start at each node of a type.

    All instances of a node are equally likely: an edge is drawn by how many lead on from its end.
    A node without any stands alone.
    """
    rows, counts = [], np.ones(data.num_nodes)
    for name in reversed(path):
        edges = data.relations[name].edges.numpy()
        edges = edges[:, np.argsort(edges[0], kind="stable")]
        ends = np.cumsum(counts[edges[1]])  # how many instances the edges so far lead to
        first, last = (
            np.searchsorted(edges[0], np.arange(data.num_nodes), s) for s in ("left", "right")
        )
        before = np.concatenate([[0.0], ends])
        counts = before[last] - before[first]
        rows.append((edges[1], ends, before[first]))
    start = data.slices[data.metadata[path[0]][0]]
    node = np.repeat(np.arange(start.start, start.stop), num)
    alone, steps, left = counts[node] == 0, [node], counts[node]
    for target, ends, offset in reversed(rows):
        drawn = offset[node] + torch.rand(len(node), dtype=torch.float64).numpy() * left
        edge = np.minimum(np.searchsorted(ends, drawn, "right"), len(target) - 1)
        node = np.where(alone, steps[0], target[edge])
        left = np.diff(ends, prepend=0.0)[edge]
        steps.append(node)
    return torch.from_numpy(np.stack(steps, 1)).view(-1, num, len(path) + 1)


def _glorot(*shape: int) -> nn.Parameter:
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(shape)))
