"""MetaGraphNet: projections of the input, meta-graph layers, and a head for the task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensus_tn.nn.conv import Activation, MetaGraphConv, Norm
from tensus_tn.nn.schema import Metadata, Schema
from tensus_tn.relations import RelationGraph

Features = Mapping[str, Tensor]


class MetaGraphNet(nn.Module):
    """A network over one or several meta-graph layers, for the nodes of one type.

    A linear projection for each node type, `input_activation`, the layers (each with dropout on its
    input, an affine map, the propagation, norm and activation), and a linear classifier. With the
    defaults, one layer and rank 1 this is DiffMG's network.

    Args:
        in_channels: The feature size of every node type, in the order of the graph's nodes.
        hidden_channels: The size of all states.
        out_channels: The number of classes; None for no classifier, so that states come out.
        metadata: As for `MetaGraphConv`.
        target: The node type whose nodes come out.
        num_layers: Only the links into the sink of the last layer are bound to the target type.
        input_activation: After the projection, for example `torch.tanh`.
        dropout, norm, activation: Of every layer.
        options: Further ones of `MetaGraphConv`: dag, rank, ties, heads, choices and so on.

    Example:
        >>> edges = {("a", "to", "b"): torch.tensor([[0, 1], [0, 0]])}
        >>> g = RelationGraph.from_edge_index(edges, {"a": 2, "b": 1}, identity=True, zero=True)
        >>> net = MetaGraphNet({"a": 3, "b": 5}, 8, 2, (["a", "b"], list(edges)), target="b")
        >>> net({"a": torch.randn(2, 3), "b": torch.randn(1, 5)}, g).shape
        torch.Size([1, 2])
    """

    def __init__(
        self,
        in_channels: Mapping[str, int],
        hidden_channels: int,
        out_channels: int | None,
        metadata: Metadata | Schema,
        target: str,
        *,
        num_layers: int = 1,
        input_activation: Activation | None = None,
        dropout: float = 0.0,
        norm: Norm | None = nn.LayerNorm,
        activation: Activation | None = F.gelu,
        **options: Any,
    ) -> None:
        super().__init__()
        schema = Schema.of(metadata)
        if target not in in_channels:
            raise ValueError(f"target {target!r} is not among the node types {list(in_channels)}")
        self.target, self.input_activation = target, input_activation
        self.projections = nn.ModuleDict(
            {kind: nn.Linear(size, hidden_channels) for kind, size in in_channels.items()}
        )
        self.convs = nn.ModuleList(
            MetaGraphConv(
                hidden_channels,
                hidden_channels,
                schema,
                target=target if layer == num_layers - 1 else None,
                dropout=dropout,
                norm=norm,
                activation=activation,
                **options,
            )
            for layer in range(num_layers)
        )
        self.classifier = None if out_channels is None else nn.Linear(hidden_channels, out_channels)

    def arch_parameters(self) -> list[nn.Parameter]:
        """The logits of the cores of all layers."""
        return [p for conv in self.convs for p in conv.arch_parameters()]  # type: ignore[operator]

    def weight_parameters(self) -> list[nn.Parameter]:
        """All other parameters."""
        arch = {id(p) for p in self.arch_parameters()}
        return [p for p in self.parameters() if id(p) not in arch]

    def forward(self, x: Features, graph: RelationGraph) -> Tensor:
        """Class scores (or states) of the target nodes from the features of every node type."""
        parts = {kind: project(x[kind]) for kind, project in self.projections.items()}
        h = torch.cat(list(parts.values()))
        h = h if self.input_activation is None else self.input_activation(h)
        for conv in self.convs:
            h = conv(h, graph)
        before = sum(len(part) for part in list(parts.values())[: list(parts).index(self.target)])
        h = h[before : before + len(parts[self.target])]
        return h if self.classifier is None else self.classifier(h)


class TwoTowers(nn.Module):
    """Link prediction: a network for either end, and the dot product of their states.

    Args:
        source: The network of the first nodes of all pairs, without a classifier.
        target: That of the second ones.

    Example:
        >>> edges = {("u", "buys", "i"): torch.tensor([[0, 1], [0, 0]])}
        >>> g = RelationGraph.from_edge_index(edges, {"u": 2, "i": 1}, identity=True, zero=True)
        >>> nets = [MetaGraphNet({"u": 2, "i": 1}, 8, None, (["u", "i"], list(edges)), t) for t in "ui"]
        >>> x = {"u": torch.eye(2), "i": torch.eye(1)}
        >>> TwoTowers(*nets)(x, g, torch.tensor([[0, 1], [0, 0]])).shape
        torch.Size([2])
    """

    def __init__(self, source: MetaGraphNet, target: MetaGraphNet) -> None:
        super().__init__()
        self.source, self.target = source, target

    def arch_parameters(self) -> list[nn.Parameter]:
        """The logits of the cores of both networks."""
        return self.source.arch_parameters() + self.target.arch_parameters()

    def weight_parameters(self) -> list[nn.Parameter]:
        """All other parameters."""
        return self.source.weight_parameters() + self.target.weight_parameters()

    def forward(self, x: Features, graph: RelationGraph, pairs: Tensor) -> Tensor:
        """Scores (B,) of `pairs` (2, B): ids within the two node types, source first."""
        source: Tensor = self.source(x, graph)
        target: Tensor = self.target(x, graph)
        return (source[pairs[0]] * target[pairs[1]]).sum(-1)
