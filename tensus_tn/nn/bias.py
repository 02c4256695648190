"""PairBias: what a pair's score is from its two ends alone, without their likeness."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tensus_tn._arguments import check_memory, check_size
from tensus_tn.propagation.node_ids import require_ids


class PairBias(nn.Module):
    """A bias for each node of either end, and a linear function of features of theirs.

        b(s, t) = b_s + b_t + w . z_s + v . z_t + c

    Args:
        num_nodes: How many nodes the type has that pairs begin with, and the one that they end in.
        channels: The sizes of the features of both, for example of log degrees; 0 for none.

    Example:
        >>> bias = PairBias((4, 3), channels=(2, 0))
        >>> bias(torch.tensor([[0, 3], [2, 2]]), torch.ones(4, 2)).shape
        torch.Size([2])
    """

    def __init__(self, num_nodes: Sequence[int], channels: Sequence[int] = (0, 0)) -> None:
        super().__init__()
        sizes = [check_size("the number of nodes", n) for n in num_nodes]
        check_memory("weights", sum(sizes) + sum(channels), torch.get_default_dtype())
        self.nodes = nn.ParameterList(torch.zeros(n) for n in sizes)
        self.weights = nn.ParameterList(torch.zeros(size) for size in channels)
        self.constant = nn.Parameter(torch.zeros(()))

    def reset_parameters(self) -> None:
        """Set all parameters to zero."""
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def forward(self, pairs: Tensor, *features: Tensor | None) -> Tensor:
        """Scores (B,) of `pairs` (2, B), ids within the two node types, source first.

        Args:
            pairs: Of which the first row is of the first type.
            features: Of all nodes of either type (n, channels), where they have some.
        """
        ends: list[Tensor] = list(self.nodes)
        for k, z in enumerate(features):
            ends[k] = ends[k] if z is None else ends[k] + z @ self.weights[k]
        first, second = check_pairs(pairs, len(ends[0]), len(ends[1]))
        return ends[0][first] + ends[1][second] + self.constant

    def extra_repr(self) -> str:
        """What ``repr`` shows before the parts."""
        return f"{tuple(map(len, self.nodes))}, channels={tuple(map(len, self.weights))}"


def check_pairs(pairs: Tensor, num_source: int, num_target: int) -> tuple[Tensor, Tensor]:
    """The two rows of pairs (2, B), as ids that an index takes."""
    if pairs.ndim != 2 or len(pairs) != 2:
        raise ValueError(f"pairs must have shape (2, B), got {tuple(pairs.shape)}")
    return (
        require_ids("source node", pairs[0], num_source),
        require_ids("target node", pairs[1], num_target),
    )
