"""Averages of models, against the mean of their scores."""

import pytest
import torch

from tensus_tn.nn import MetaGraphNet, TwoTowers, average
from tests.nn.meta_graphs import SIZES, TYPES


def test_class_scores_are_averaged(typed_graph, x):
    nets = [MetaGraphNet(SIZES, 8, 3, TYPES, "A") for _ in range(3)]
    mean = average(nets).eval()
    expected = sum(net(x, typed_graph) for net in nets) / 3
    torch.testing.assert_close(mean(x, typed_graph), expected)
    assert len(list(mean.parameters())) == 3 * len(list(nets[0].parameters()))


def test_scores_of_pairs_are_averaged(typed_graph, x):
    towers = [
        TwoTowers(*(MetaGraphNet(SIZES, 8, None, TYPES, kind) for kind in "AP")) for _ in range(2)
    ]
    pairs = torch.tensor([[0, 3, 2], [5, 5, 1]])
    mean = average(towers).eval()
    expected = sum(model(x, typed_graph, pairs) for model in towers) / 2
    torch.testing.assert_close(mean(x, typed_graph, pairs), expected)


def test_no_models_are_refused():
    with pytest.raises(ValueError, match="no models"):
        average([])
