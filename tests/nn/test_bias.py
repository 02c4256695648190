"""Biases of pairs, against the sum that they are."""

import pytest
import torch

from tensus_tn.nn import PairBias


def random_bias(channels):
    bias = PairBias((4, 3), channels)
    for parameter in bias.parameters():
        torch.nn.init.normal_(parameter)
    return bias


@pytest.mark.parametrize("channels", [(0, 0), (2, 0), (2, 5)])
def test_it_is_a_sum_over_both_ends(channels):
    bias = random_bias(channels)
    z = [torch.randn(n, size) if size else None for n, size in zip((4, 3), channels, strict=True)]
    pairs = torch.tensor([[0, 3, 3], [2, 2, 0]])
    for score, (s, t) in zip(bias(pairs, *z), pairs.T.tolist(), strict=True):
        expected = bias.nodes[0][s] + bias.nodes[1][t] + bias.constant
        for k, end in enumerate((s, t)):
            if z[k] is not None:
                expected = expected + z[k][end] @ bias.weights[k]
        torch.testing.assert_close(score, expected)


def test_it_starts_from_zero_and_returns_there():
    bias, pairs = random_bias((0, 0)), torch.tensor([[0], [0]])
    assert bias(pairs) != 0
    bias.reset_parameters()
    assert bias(pairs) == 0
    assert PairBias((4, 3))(pairs) == 0
    assert repr(PairBias((4, 3), (2, 0))).startswith("PairBias(\n  (4, 3), channels=(2, 0)")


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (torch.zeros(3, 2, dtype=torch.long), r"shape \(2, B\), got \(3, 2\)"),
        (torch.tensor([[4], [0]]), "source node 4 is out of range"),
        (torch.tensor([[0], [3]]), "target node 3 is out of range"),
    ],
)
def test_wrong_pairs_are_refused(pairs, message):
    with pytest.raises(ValueError, match=message):
        PairBias((4, 3))(pairs)
    with pytest.raises(ValueError, match="number of nodes must be a positive integer"):
        PairBias((0, 3))
