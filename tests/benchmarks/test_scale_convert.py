"""The benchmark of conversions: both parts run, on a small graph."""

import torch

from benchmarks.scale import convert
from tensus_tn.nn import set_graph_cache_size


def test_conversions_are_measured():
    try:
        assert list(convert.beside_a_layer("dblp", seconds=0.1)) == ["conversion", "forward"]
    finally:
        set_graph_cache_size(16)
    seconds, memory = convert.large("dblp", once=True)
    assert seconds > 0
    assert memory >= 0


def test_edges_are_left_once():
    edges = {("a", "r", "a"): torch.tensor([[0, 1, 0, 2], [1, 1, 1, 0]])}
    convert.distinct(edges)
    assert sorted(map(tuple, edges["a", "r", "a"].T.tolist())) == [(0, 1), (1, 1), (2, 0)]
