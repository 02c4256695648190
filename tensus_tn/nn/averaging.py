"""average: one model out of several, whose scores are the mean of theirs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Average(nn.Module):
    """Several models as one, see `average`.

    Args:
        models: All called alike.
    """

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        if not models:
            raise ValueError("there are no models to average")
        self.models = nn.ModuleList(models)

    def forward(self, *inputs: Any, **options: Any) -> Tensor:
        """The mean of what the models return."""
        return torch.stack([model(*inputs, **options) for model in self.models]).mean(0)


def average(models: Sequence[nn.Module]) -> Average:
    """One model whose scores, of classes or of pairs, are the mean of the scores of several.

    For example networks over the best few meta-graphs, or the best one trained with several seeds.

    Example:
        >>> from tensus_tn import RelationGraph
        >>> from tensus_tn.nn import MetaGraphNet
        >>> edges = {("a", "to", "b"): torch.tensor([[0, 1], [0, 0]])}
        >>> g = RelationGraph.from_edge_index(edges, {"a": 2, "b": 1}, identity=True, zero=True)
        >>> x = {"a": torch.randn(2, 3), "b": torch.randn(1, 5)}
        >>> nets = [MetaGraphNet({"a": 3, "b": 5}, 8, 2, (["a", "b"], list(edges)), "b") for _ in "12"]
        >>> mean = average(nets).eval()
        >>> torch.allclose(mean(x, g), (nets[0](x, g) + nets[1](x, g)) / 2)
        True
    """
    return Average(models)
