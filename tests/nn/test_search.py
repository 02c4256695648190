"""The expected propagation, against the sum over all meta-graphs."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tensus_tn import Dag, DagTensor
from tensus_tn.nn import MetaGraphConv
from tensus_tn.propagation.arguments import Arguments
from tests.nn.meta_graphs import DAGS, NAMES, dense, make_conv, random_graph, sink_state
from tests.propagation.problems import Recorder

pytestmark = pytest.mark.usefixtures("double")


@pytest.mark.parametrize("ties", ["node", "global"])
@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("dag", DAGS.values(), ids=DAGS)
def test_soft_is_the_mean_over_all_meta_graphs(dag, rank, ties):
    names = NAMES[:2]
    graph, x = random_graph(names=names), torch.randn(7, 5)
    conv = MetaGraphConv(5, 4, names, dag=dag, rank=rank, ties=ties, init_scale=1.0)
    matrices, h, choices = dense(graph), conv.lin(x).detach(), conv.tensor.choice_names
    expected = torch.zeros(7, 4)
    probability = conv.tensor.to_dense().flatten().tolist()
    for p, chosen in zip(probability, itertools.product(*choices.values()), strict=True):
        expected += p * sink_state(matrices, dag, h, dict(zip(dag.edges, chosen, strict=True)))
    torch.testing.assert_close(conv(x, graph), expected)


@pytest.mark.parametrize("ties", ["node", "global"])
def test_a_layer_made_in_single_precision_is_exact_in_double(ties):
    torch.set_default_dtype(torch.float32)
    single = MetaGraphConv(5, 4, NAMES, dag=DAGS["complete"], rank=3, ties=ties)
    torch.set_default_dtype(torch.float64)
    double = MetaGraphConv(5, 4, NAMES, dag=DAGS["complete"], rank=3, ties=ties)
    double.load_state_dict(single.double().state_dict())
    graph, x = random_graph(), torch.randn(7, 5)
    torch.testing.assert_close(single(x, graph), double(x, graph), rtol=0, atol=1e-14)


def test_ranks_may_differ_between_states():
    dag, graph, x = DAGS["complete"], random_graph(names=NAMES[:1]), torch.randn(7, 5)
    rank = {1: 2, 2: 3}
    conv = MetaGraphConv(5, 4, NAMES[:1], dag=dag, rank=rank, init_scale=1.0)
    expected = torch.zeros(7, 4)
    for index in itertools.product(*map(range, conv.tensor.shape)):
        names = conv.tensor.choice_names
        relations = {e: names[e][i] for e, i in zip(dag.edges, index, strict=True)}
        expected += conv.tensor[index] * sink_state(dense(graph), dag, conv.lin(x), relations)
    torch.testing.assert_close(conv(x, graph), expected)


def test_rank_one_is_the_formula_of_diffmg(graph):
    conv, x = make_conv(Dag.complete(3), rank=1), torch.randn(7, 5)
    matrices, states = dense(graph), [conv.lin(x)]
    logits = dict(zip(conv.tensor.dag.edges, conv.arch_parameters(), strict=True))
    for k in (1, 2, 3):
        state = 0
        for j in range(k):
            allowed = [*NAMES, "identity"] if j == k - 1 else [*NAMES, "identity", "zero"]
            alpha = logits[j, k].flatten().softmax(0)
            assert len(alpha) == len(allowed)
            for a, name in zip(alpha, allowed, strict=True):
                state = state + a * matrices[name] @ states[j]
        states.append(state)
    torch.testing.assert_close(conv(x, graph), states[3])


def test_a_path_is_the_formula_of_gtn(graph):
    conv, x = make_conv(Dag.path(2), rank=1), torch.randn(7, 5)
    stack = torch.stack([dense(graph)[name] for name in [*NAMES, "identity"]])
    first, second = (b.flatten().softmax(0) for b in conv.arch_parameters())
    q1, q2 = (torch.einsum("i,inm->nm", alpha, stack) for alpha in (first, second))
    torch.testing.assert_close(conv(x, graph), q2 @ q1 @ conv.lin(x))


@pytest.mark.parametrize("ties", ["node", "global"])
def test_every_core_receives_a_gradient(graph, ties):
    conv = make_conv(Dag.complete(4), ties=ties, heads=2, norm=nn.LayerNorm, activation=F.gelu)
    conv(torch.randn(7, 5), graph).square().sum().backward()
    assert len(conv.arch_parameters()) == 20
    for core in conv.arch_parameters():
        assert (core.grad != 0).all()


@pytest.mark.parametrize("divide", [False, True])
def test_heads_take_one_pass(graph, divide):
    conv, x = make_conv(Dag.complete(3), heads=2, divide=divide), torch.randn(7, 5)
    rows = torch.tensor([4, 0])
    with Recorder() as recorder:
        y = conv(x, graph, rows=rows)
    given = recorder.calls[torch.ops.tensus_tn.propagate.default]
    assert Arguments(*given).group_sizes == [2 + divide] * 2
    grads = torch.autograd.grad(y.sin().sum(), conv.parameters())
    shares = conv.lin(x).chunk(2, -1)
    if divide:
        shares = [torch.cat([h, torch.ones(7, 1)], -1) for h in shares]
    parts = [head(h, graph)[rows] for head, h in zip(conv.heads, shares, strict=True)]
    if divide:
        parts = [part[:, :-1] / (part[:, -1:] + 1e-6) for part in parts]
    want = torch.cat(parts, -1)
    torch.testing.assert_close(y, want, rtol=1e-12, atol=1e-12)
    for a, b in zip(grads, torch.autograd.grad(want.sin().sum(), conv.parameters()), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_queries_take_one_pass(graph):
    head, num = make_conv(Dag.path(2)).heads[0], 3
    cores = {edge: torch.stack([core] * num) for edge, core in head.tensor.cores().items()}
    with Recorder() as recorder:
        head.per_query(torch.randn(7, 4), graph, cores)
    given = recorder.calls[torch.ops.tensus_tn.propagate.default]
    assert Arguments(*given).group_sizes == [4, 4, 4]


def test_one_tensor_for_each_query(graph):
    conv, h = make_conv(DAGS["named"]), torch.randn(7, 4)
    head = conv.heads[0]
    queries = [DagTensor(head.dag, conv.tensor.choice_names, 2, init_scale=1.0) for _ in range(3)]
    cores = {e: torch.stack([t.cores()[e] for t in queries]) for e in head.dag.edges}
    states = torch.randn(3, 7, 4)
    for given in (h, states):
        y = head.per_query(given, graph, cores)
        for q, tensor in enumerate(queries):
            conv.heads[0].tensor = tensor
            torch.testing.assert_close(y[q], head(given if given.ndim == 2 else given[q], graph))
    with pytest.raises(ValueError, match="3 queries, h for 2"):
        head.per_query(states[:2], graph, cores)
