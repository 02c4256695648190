"""Draws: how they are made, weighed, followed and refused."""

from dataclasses import replace

import pytest
import torch

from tensus_tn import Dag
from tensus_tn.nn.drawn import follow
from tensus_tn.nn.links import useful_links
from tests.nn.meta_graphs import DAGS, dense, make_conv, random_graph, sink_state

pytestmark = pytest.mark.usefixtures("double")


def test_sampled_training_reaches_every_core(graph):
    conv, x = make_conv(), torch.randn(7, 5)
    for epsilon in [None] * 20 + [0.5] * 20:
        conv(x, graph, draw=conv.sample(epsilon=epsilon)).square().sum().backward()
    for core in conv.arch_parameters():
        assert (core.grad != 0).all()


def test_draws_follow_one_relation_a_link_with_its_probability(graph):
    conv, x = make_conv(DAGS["named"], rank=3), torch.randn(7, 5)
    dag, names = conv.tensor.dag, conv.tensor.choice_names
    for epsilon in (0.0, 1.0):
        (draw,) = conv.sample(epsilon=epsilon)
        rank = dict(zip(dag.inner, draw.ranks, strict=True))
        relations, weights = {}, {}
        for edge, core in conv.tensor.cores().items():
            column = core[:, rank.get(edge[0], 0), rank.get(edge[1], 0)]
            if epsilon == 0.0:
                assert draw.choice[edge] == column.argmax()
            relations[edge] = names[edge][draw.choice[edge]]
            weights[edge] = column[draw.choice[edge]]
        expected = sink_state(dense(graph), dag, conv.lin(x), relations, weights)
        torch.testing.assert_close(conv(x, graph, draw=[draw]), expected)


def test_gumbel_draws_have_unit_weights_and_fair_choices(graph):
    conv, x = make_conv(Dag.path(2), rank=2), torch.randn(7, 5)
    (draw,) = conv.sample()
    names = conv.tensor.choice_names
    relations = {edge: names[edge][i] for edge, i in draw.choice.items()}
    expected = sink_state(dense(graph), conv.tensor.dag, conv.lin(x), relations)
    torch.testing.assert_close(conv(x, graph, draw=[draw]), expected)
    g = torch.Generator().manual_seed(0)
    count = torch.zeros(conv.tensor.shape)
    for _ in range(2000):
        count[tuple(conv.sample(generator=g)[0].choice.values())] += 1
    assert (count / 2000 - conv.tensor.to_dense()).abs().max() < 0.04


def test_the_gradient_of_a_gumbel_draw_is_that_of_the_relaxation(graph):
    conv, x = make_conv(Dag.path(1), rank=1), torch.randn(7, 5)
    (draw,) = conv.sample(temperature=0.3)
    (core,) = conv.arch_parameters()
    (gradient,) = torch.autograd.grad(conv(x, graph, draw=[draw]).sum(), core)
    edge, chosen = (0, 1), draw.choice[0, 1]
    soft = ((core.flatten().log_softmax(0) + draw.noise[edge]) / 0.3).softmax(0)
    followed = dense(graph)[conv.tensor.choice_names[edge][chosen]] @ conv.lin(x).detach()
    (expected,) = torch.autograd.grad(soft[chosen] * followed.sum(), core)
    torch.testing.assert_close(gradient, expected)


def test_draws_of_another_distribution_are_refused(graph):
    conv, x = make_conv(Dag.complete(2)), torch.randn(7, 5)
    (draw,) = conv.sample()
    with pytest.raises(ValueError, match="a draw for the links"):
        conv(x, graph, draw=make_conv(Dag.path(2)).sample())
    with pytest.raises(ValueError, match="does not fit"):
        conv(x, graph, draw=[replace(draw, choice={**draw.choice, (0, 1): 99})])
    with pytest.raises(ValueError, match="does not fit"):
        conv(x, graph, draw=[replace(draw, ranks=(2,))])
    with pytest.raises(ValueError, match="1 heads, but 2 draws"):
        conv(x, graph, draw=[draw, draw])


def test_epsilon_is_the_share_of_random_draws(graph):
    conv = make_conv(Dag.path(2), rank=1, init_scale=10.0)
    best = conv.sample(epsilon=0.0)[0].choice
    g = torch.Generator().manual_seed(0)
    same = sum(conv.sample(epsilon=0.5, generator=g)[0].choice == best for _ in range(1000)) / 1000
    assert abs(same - (0.5 + 0.5 / 16)) < 0.05


def test_follow_leaves_out_what_leads_nowhere():
    graph, h = random_graph(), torch.randn(7, 2, dtype=torch.float64)
    dag = Dag.complete(3)
    relations = {(0, 1): "PA", (0, 2): "zero", (0, 3): "AP"}
    relations |= {(1, 2): "zero", (1, 3): "identity", (2, 3): "X"}  # state 2 receives nothing
    weights = {edge: torch.rand((), dtype=torch.float64) for edge in dag.edges}
    expected = sink_state(dense(graph), dag, h, relations, weights)
    torch.testing.assert_close(follow(graph, dag, h, relations, weights), expected)
    useful = [edge for _, edges in useful_links(dag, relations) for edge in edges]
    assert set(useful) == {(0, 1), (0, 3), (1, 3)}
    same = dict.fromkeys(dag.edges, "X")
    expected = sink_state(dense(graph), dag, h, same, weights)
    torch.testing.assert_close(follow(graph, dag, h, same, weights), expected)
    nothing = dict.fromkeys(dag.edges, "zero")
    assert torch.equal(follow(graph, dag, h, nothing, weights), torch.zeros_like(h))
