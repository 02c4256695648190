"""Recommendation with the library's inputs, bias and loss: ours, and others in the towers' place."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch_geometric.nn import LGConv

from benchmarks.reproduce.peers import PEERS
from tensus_tn.data import Dataset, NodePairs
from tensus_tn.nn import NodeInputs, PairBias
from tensus_tn.nn.projection import Features, Projections
from tensus_tn.tasks import Task

LIGHTGCN_LAYERS = 3


class LightGCN(nn.Module):
    """The mean over the layers of PyG's `LGConv`, over the edges between the two types of pairs.

    Without vectors of its own, which PyG's `LightGCN` has: the states of the nodes are given.
    """

    def __init__(self, data: Dataset) -> None:
        super().__init__()
        assert isinstance(data.target, NodePairs)
        ends = {data.target.source, data.target.destination}
        edges = [r.edges for r in data.relations.values() if {r.source, r.destination} == ends]
        self.edges = torch.cat(edges, 1)
        self.layers = nn.ModuleList(LGConv() for _ in range(LIGHTGCN_LAYERS))

    def forward(self, parts: dict[str, Tensor]) -> dict[str, Tensor]:
        states = [torch.cat(list(parts.values()))]
        for layer in self.layers:
            states.append(layer(states[-1], self.edges))
        mean = torch.stack(states).mean(0)
        return dict(zip(parts, mean.split([len(part) for part in parts.values()]), strict=True))


class PairPeer(nn.Module):
    """Inputs and bias as in `TwoTowers`; between them another network, or none.

    Args:
        task: With the structure of the nodes as inputs.
        layers: From states by node type to such; None for a score that is the bias alone.
        hidden: The size of the states.
        dropout: On the vectors that ids become.
        degrees: Whether the bias sees the degrees.
    """

    def __init__(
        self,
        task: Task,
        layers: nn.Module | None,
        hidden: int = 0,
        dropout: float = 0.0,
        degrees: bool = True,
    ) -> None:
        super().__init__()
        self.targets, self.layers, self.dropout = task.spec["targets"], layers, dropout
        self.degrees = degrees
        self.bias = PairBias(
            [task.data.node_counts[kind] for kind in self.targets],
            [z.shape[1] for z in self._degrees(task.x)] or (0, 0),
        )
        if layers is not None:
            sizes = {kind: NodeInputs(**size) for kind, size in task.spec["in_channels"].items()}
            self.project = Projections(sizes, hidden)

    def bias_parameters(self) -> list[nn.Parameter]:
        """As `TwoTowers` has them."""
        return list(self.bias.parameters())

    def bias_scores(self, x: Features, pairs: Tensor) -> Tensor:
        """What the bias alone says (B,) of `pairs` (2, B)."""
        scores: Tensor = self.bias(pairs, *self._degrees(x))
        return scores

    def _degrees(self, x: Features) -> list[Tensor]:
        return [x[kind].degree for kind in self.targets] if self.degrees else []

    def forward(self, x: Features, graph: object, pairs: Tensor) -> Tensor:
        scores = self.bias_scores(x, pairs)
        if self.layers is None:
            return scores
        parts = self.project(x, self.dropout if self.training else 0.0)
        states = self.layers(dict(zip(x, parts, strict=True)))
        first, second = (states[kind] for kind in self.targets)
        return scores + (first[pairs[0]] * second[pairs[1]]).sum(-1)


#: What stands in the towers' place.
LAYERS: dict[str, Callable[[Dataset, int], nn.Module]] = {
    "rgcn": PEERS["rgcn"],
    "lightgcn": lambda data, hidden: LightGCN(data),
}
