"""Layers over given meta-graphs, alone or mixed."""

import pickle

import pytest
import torch
from torch import nn

from tensus_tn import Dag
from tensus_tn.nn import MetaGraph
from tests.nn.meta_graphs import DAGS, dense, make_conv, sink_state

pytestmark = pytest.mark.usefixtures("double")


@pytest.mark.parametrize("k", [1, 2, 7])
@pytest.mark.parametrize("dag", DAGS.values(), ids=DAGS)
def test_derived_is_the_mixture_of_the_best(graph, dag, k):
    conv, x = make_conv(dag, norm=nn.LayerNorm), torch.randn(7, 5)
    derived = conv.derive(k)
    best = conv.meta_graphs(k)
    top = conv.tensor.top_k(k)
    assert [m.probability for m in best] == pytest.approx(top.value.tolist())
    pi = top.value / top.value.sum()
    h = conv.lin(x)
    parts = [sink_state(dense(graph), dag, h, m.relations) for m in best]
    y = sum(p * part for p, part in zip(pi, parts, strict=True))
    torch.testing.assert_close(derived(x, graph), conv.norm(y))
    assert derived.meta_graphs(k) == best
    torch.testing.assert_close(pickle.loads(pickle.dumps(derived))(x, graph), derived(x, graph))


def test_a_derived_layer_is_a_layer_of_its_own(graph):
    conv, x = make_conv(heads=2, norm=nn.LayerNorm), torch.randn(7, 5)
    before = conv(x, graph)
    derived = conv.derive(3)
    derived(x, graph).pow(3).sum().backward()
    assert len(derived.arch_parameters()) == 2
    assert all((p.grad != 0).any() for p in derived.arch_parameters())
    assert all(p.grad is None for p in conv.parameters())
    with torch.no_grad():
        for p in derived.parameters():
            p.zero_()
    assert torch.equal(conv(x, graph), before)
    with pytest.raises(ValueError, match="no distribution"):
        derived.sample()


def test_a_derived_layer_can_be_trained_after_inference(graph):
    conv, x = make_conv().derive(2), torch.randn(7, 5)
    with torch.inference_mode():
        before = conv(x, graph)
    after = conv(x, graph)
    after.sum().backward()
    assert torch.equal(after, before)


def test_the_state_of_other_meta_graphs_is_refused(graph):
    dag, conv, x = Dag.path(2), make_conv(), torch.randn(7, 5)
    one, two = (
        MetaGraph(dag, dict(zip(dag.edges, names, strict=True)))
        for names in (("PA", "AP"), ("AP", "PA"))
    )
    state = conv.fix(one).state_dict()
    same = make_conv().fix(one)
    same.load_state_dict(state)
    assert torch.equal(same(x, graph), conv.fix(one)(x, graph))
    for others in (two, [one, two], [two, one]):
        with pytest.raises((ValueError, RuntimeError), match=r"other meta-graphs|Missing key"):
            make_conv().fix(others).load_state_dict(state)
    with pytest.raises(ValueError, match="of a layer over other meta-graphs"):
        make_conv().fix([two, one]).load_state_dict(conv.fix([one, two]).state_dict())


def test_fixed_meta_graphs_share_states_and_count_what_is_double(graph):
    dag = Dag.complete(2)
    same_twice = MetaGraph(dag, {(0, 1): "identity", (0, 2): "PA", (1, 2): "PA"})
    other = MetaGraph(dag, {(0, 1): "PA", (0, 2): "zero", (1, 2): "AP"})
    conv, x = make_conv(dag), torch.randn(7, 5)
    fixed = conv.fix([same_twice, other])
    a, h = dense(graph), conv.lin(x)
    h_two = a["PA"] @ h + a["PA"] @ h
    torch.testing.assert_close(fixed(x, graph), 0.5 * h_two + 0.5 * a["AP"] @ (a["PA"] @ h))
    assert conv.fix(same_twice).heads[0].merged.edges == ((0, 1),)
    alone = conv.fix(other)
    assert list(alone.heads[0].choices.values()) == [["PA"], ["AP"]]
    torch.testing.assert_close(alone(x, graph), a["AP"] @ (a["PA"] @ h))
    swapped = Dag([(0, 1), (1, 2), (0, 2)])
    assert swapped.edges != dag.edges
    twins = [MetaGraph(d, {(0, 1): "PA", (0, 2): "X", (1, 2): "AP"}) for d in (dag, swapped)]
    assert conv.fix(twins).arch_parameters() == []  # one meta-graph, in whatever order of links
    nothing_but_identities = MetaGraph(Dag.path(2), dict.fromkeys(Dag.path(2).edges, "identity"))
    torch.testing.assert_close(conv.fix(nothing_but_identities)(x, graph), h)
    torch.testing.assert_close(conv.fix([nothing_but_identities] * 2)(x, graph), h)
