"""TwoTowers: link prediction by two networks, one for either end of a pair."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tensus_tn.nn.bias import PairBias, check_pairs
from tensus_tn.nn.meta_graph import MetaGraph
from tensus_tn.nn.net import Draws, MetaGraphNet
from tensus_tn.nn.projection import Features, NodeInputs, num_nodes
from tensus_tn.propagation.graph_part import checking

#: For each layer, one meta-graph or several to mix.
Fixed = Sequence[MetaGraph | Sequence[MetaGraph]]


class TwoTowers(nn.Module):
    """Link prediction: a network for either end, the dot product of their states, and a bias.

    Args:
        source: The network of the first nodes of all pairs, without a head.
        target: That of the second ones.
        bias: Added to the scores; it sees the `degree` of `NodeInputs`, where there are such.

    Example:
        >>> from tensus_tn import RelationGraph
        >>> edges = {("u", "buys", "i"): torch.tensor([[0, 1], [0, 0]])}
        >>> g = RelationGraph.from_edge_index(edges, {"u": 2, "i": 1}, identity=True, zero=True)
        >>> nets = [MetaGraphNet({"u": 2, "i": 1}, 8, None, (["u", "i"], list(edges)), t) for t in "ui"]
        >>> x = {"u": torch.eye(2), "i": torch.eye(1)}
        >>> TwoTowers(*nets)(x, g, torch.tensor([[0, 1], [0, 0]])).shape
        torch.Size([2])
    """

    def __init__(
        self, source: MetaGraphNet, target: MetaGraphNet, bias: PairBias | None = None
    ) -> None:
        super().__init__()
        self.source, self.target, self.bias = source, target, bias

    def arch_parameters(self) -> list[nn.Parameter]:
        """The logits of the cores of both networks."""
        return self.source.arch_parameters() + self.target.arch_parameters()

    def weight_parameters(self) -> list[nn.Parameter]:
        """All other parameters, but those of the bias."""
        return self.source.weight_parameters() + self.target.weight_parameters()

    def bias_parameters(self) -> list[nn.Parameter]:
        """Those of the bias, if there is one."""
        return [] if self.bias is None else list(self.bias.parameters())

    def reset_parameters(self) -> None:
        """Draw new initial values of all parameters."""
        self.source.reset_parameters()
        self.target.reset_parameters()
        if self.bias is not None:
            self.bias.reset_parameters()

    def sample(
        self,
        *,
        epsilon: float | None = None,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> tuple[Draws, Draws]:
        """A draw of either network, with a coin of its own."""
        source, target = (
            net.sample(epsilon=epsilon, temperature=temperature, generator=generator)
            for net in (self.source, self.target)
        )
        return source, target

    def derive(self, k: int = 1) -> TwoTowers:
        """Both networks over their best `k` meta-graphs alone."""
        return TwoTowers(self.source.derive(k), self.target.derive(k), copy.deepcopy(self.bias))

    def fix(self, source: Fixed, target: Fixed) -> TwoTowers:
        """Both networks over given meta-graphs alone: for each layer of either, one or several."""
        nets = self.source.fix(*source), self.target.fix(*target)
        return TwoTowers(*nets, copy.deepcopy(self.bias))

    def bias_scores(self, x: Features, pairs: Tensor) -> Tensor:
        """What the bias alone says (B,) of `pairs` (2, B)."""
        if self.bias is None:
            raise ValueError("these towers have no bias")
        ends = (x[self.source.target], x[self.target.target])
        degrees = (end.degree if isinstance(end, NodeInputs) else None for end in ends)
        scores: Tensor = self.bias(pairs, *degrees)
        return scores

    def forward(
        self,
        x: Features,
        graph: Any,
        pairs: Tensor,
        *,
        draw: tuple[Draws, Draws] | None = None,
    ) -> Tensor:
        """Scores (B,) of `pairs` (2, B): ids within the two node types, source first."""
        scores = self.likeness(x, graph, pairs, draw=draw)
        return scores if self.bias is None else scores + self.bias_scores(x, pairs)

    def likeness(
        self,
        x: Features,
        graph: Any,
        pairs: Tensor,
        *,
        draw: tuple[Draws, Draws] | None = None,
    ) -> Tensor:
        """The scores (B,) without the bias: for blocks, as the bias goes by ids of the whole graph."""
        nets = self.source, self.target
        with checking(graph):
            sizes = (num_nodes(net.target, x[net.target]) for net in nets)
            ends = check_pairs(pairs, *sizes)
            drawn = (None, None) if draw is None else draw
            if len(drawn) != 2:
                raise ValueError(f"a draw for each of two networks, got {len(drawn)}")
        states: list[Tensor] = []
        for net, ids, draws in zip(nets, ends, drawn, strict=True):
            distinct, place = _distinct(ids)
            states.append(net(x, graph, draw=draws, rows=distinct).index_select(0, place))
        source, target = states
        return (source * target).sum(-1)


def _distinct(ids: Tensor) -> tuple[Tensor, Tensor]:
    """The ids that occur, and where each stands among them."""
    if torch.compiler.is_compiling():  # a compiled graph can't depend on how many there are
        return ids, torch.arange(len(ids), device=ids.device)
    distinct, place = torch.unique(ids, return_inverse=True)
    return distinct, place
