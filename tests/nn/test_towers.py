"""TwoTowers: scores of pairs."""

import pytest
import torch

from tensus_tn.nn import MetaGraphNet, NodeInputs, PairBias, TwoTowers
from tests.nn.meta_graphs import SIZES, TYPES


def test_two_towers_score_pairs(typed_graph, x):
    nets = [MetaGraphNet(SIZES, 8, None, TYPES, kind, dropout=0.0) for kind in ("A", "P")]
    towers, pairs = TwoTowers(*nets), torch.tensor([[0, 3, 2], [5, 5, 1]])
    a, p = (net(x, typed_graph) for net in nets)
    assert a.shape == (4, 8)
    expected = [a[i] @ p[j] for i, j in pairs.t().tolist()]
    torch.testing.assert_close(towers(x, typed_graph, pairs), torch.stack(expected))
    for dtype in (torch.uint8, torch.int16, torch.int32):
        scores = towers(x, typed_graph, pairs.to(dtype), draw=None)
        torch.testing.assert_close(scores, torch.stack(expected))
    assert len(towers.arch_parameters()) == 8
    every = towers.arch_parameters() + towers.weight_parameters()
    assert {id(q) for q in every} == {id(q) for q in towers.parameters()}
    draw = towers.sample(epsilon=0.5)
    drawn = [net(x, typed_graph, draw=d) for net, d in zip(nets, draw, strict=True)]
    scores = (drawn[0][pairs[0]] * drawn[1][pairs[1]]).sum(1)
    torch.testing.assert_close(towers(x, typed_graph, pairs, draw=draw), scores)
    derived = towers.derive()
    parts = [net.derive()(x, typed_graph) for net in nets]
    scores = (parts[0][pairs[0]] * parts[1][pairs[1]]).sum(1)
    torch.testing.assert_close(derived(x, typed_graph, pairs), scores)
    fixed = towers.fix(*([net.meta_graph()] for net in nets))
    torch.testing.assert_close(fixed(x, typed_graph, pairs), scores)
    fixed.reset_parameters()
    for net, new in zip(nets, (fixed.source, fixed.target), strict=True):
        assert not torch.equal(new.project.maps[0].weight, net.project.maps[0].weight)


def test_bad_pairs(typed_graph, x):
    towers = TwoTowers(*(MetaGraphNet(SIZES, 8, None, TYPES, kind) for kind in ("A", "P")))
    for pairs, message in [
        (torch.tensor([[0], [6]]), "target node 6 is out of range, there are 6"),
        (torch.tensor([[-1], [0]]), "source node -1"),
        (torch.tensor([0, 1]), r"\(2, B\), got \(2,\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            towers(x, typed_graph, pairs)


def test_a_bias_is_added_and_sees_the_degrees(typed_graph, x):
    sizes = {**SIZES, "A": NodeInputs(features=3, degree=2)}
    x = {**x, "A": NodeInputs(features=x["A"], degree=torch.randn(4, 2))}
    nets = [MetaGraphNet(sizes, 8, None, TYPES, kind, dropout=0.0) for kind in ("A", "P")]
    bias = PairBias((4, 6), (2, 0))
    for parameter in bias.parameters():
        torch.nn.init.normal_(parameter)
    towers, pairs = TwoTowers(*nets, bias), torch.tensor([[0, 3, 2], [5, 5, 1]])
    alone = bias(pairs, x["A"].degree, None)
    torch.testing.assert_close(towers.bias_scores(x, pairs), alone)
    without = TwoTowers(*nets)
    torch.testing.assert_close(
        towers(x, typed_graph, pairs), without(x, typed_graph, pairs) + alone
    )
    with pytest.raises(ValueError, match="no bias"):
        without.bias_scores(x, pairs)
    groups = towers.arch_parameters(), towers.weight_parameters(), towers.bias_parameters()
    assert sum(map(len, groups)) == len(list(towers.parameters()))
    derived = towers.derive()
    torch.testing.assert_close(derived.bias_scores(x, pairs), alone)
    derived.reset_parameters()
    assert (derived.bias_scores(x, pairs) == 0).all()
    torch.testing.assert_close(towers.bias_scores(x, pairs), alone)
