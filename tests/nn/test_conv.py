"""MetaGraphConv over a RelationGraph, against the sums that it stands for."""

import copy
import itertools
import pickle
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tensus_tn import Dag, DagTensor, RelationGraph
from tensus_tn.nn import MetaGraph, MetaGraphConv
from tests.nn.meta_graphs import DAGS, TYPES, dense, random_graph, sink_state

NAMES = ["PA", "AP", "X"]


@pytest.fixture(autouse=True)
def _double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def graph():
    return random_graph()


def make(dag=DAGS["complete"], rank=2, **options):
    return MetaGraphConv(5, 4, NAMES, dag=dag, rank=rank, **{"init_scale": 1.0, **options})


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
    conv, x = make(Dag.complete(3), rank=1), torch.randn(7, 5)
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
    conv, x = make(Dag.path(2), rank=1), torch.randn(7, 5)
    stack = torch.stack([dense(graph)[name] for name in [*NAMES, "identity"]])
    first, second = (b.flatten().softmax(0) for b in conv.arch_parameters())
    q1, q2 = (torch.einsum("i,inm->nm", alpha, stack) for alpha in (first, second))
    torch.testing.assert_close(conv(x, graph), q2 @ q1 @ conv.lin(x))


@pytest.mark.parametrize("ties", ["node", "global"])
def test_every_core_receives_a_gradient(graph, ties):
    conv = make(Dag.complete(4), ties=ties, heads=2, norm=nn.LayerNorm, activation=F.gelu)
    conv(torch.randn(7, 5), graph).square().sum().backward()
    assert len(conv.arch_parameters()) == 20
    for core in conv.arch_parameters():
        assert (core.grad != 0).all()


def test_sampled_training_reaches_every_core(graph):
    conv, x = make(), torch.randn(7, 5)
    for epsilon in [None] * 20 + [0.5] * 20:
        conv(x, graph, draw=conv.sample(epsilon=epsilon)).square().sum().backward()
    for core in conv.arch_parameters():
        assert (core.grad != 0).all()


def test_gradients(graph):
    conv, x = make(DAGS["named"]), torch.randn(7, 5, requires_grad=True)
    cores = conv.arch_parameters()
    assert torch.autograd.gradcheck(lambda x, *_: conv(x, graph), (x, *cores))
    draw = conv.sample(epsilon=0.0)
    assert torch.autograd.gradcheck(lambda x, *_: conv(x, graph, draw=draw), (x, *cores))


def test_parameters_are_in_the_state_dict_and_in_one_of_two_groups(graph):
    conv, other = make(heads=2, norm=nn.LayerNorm), make(heads=2, norm=nn.LayerNorm)
    other.load_state_dict(conv.state_dict())
    x = torch.randn(7, 5)
    assert torch.equal(conv(x, graph), other(x, graph))
    cores, weights = conv.arch_parameters(), conv.weight_parameters()
    assert len(cores) + len(weights) == len(list(conv.parameters()))
    assert {id(p) for p in cores} == {id(p) for h in conv.heads for p in h.tensor.parameters()}
    assert set(map(id, weights)) == {id(p) for m in (conv.lin, conv.norm) for p in m.parameters()}
    before = [p.clone() for p in conv.parameters()]
    conv.reset_parameters()
    same = [torch.equal(*pair) for pair in zip(before, conv.parameters(), strict=True)]
    assert same.count(True) == 2  # norm starts from ones and zeros


def test_heads_dropout_norm_and_activation(graph):
    conv, x = make(heads=2, dropout=0.5, norm=nn.LayerNorm, activation=F.gelu), torch.randn(7, 5)
    conv.eval()
    parts = conv.lin(x).chunk(2, -1)
    y = torch.cat([head(h, graph) for head, h in zip(conv.heads, parts, strict=True)], -1)
    torch.testing.assert_close(conv(x, graph), F.gelu(F.layer_norm(y, (4,))))
    conv.train()
    torch.manual_seed(1)
    dropped = conv(x, graph)
    torch.manual_seed(1)
    parts = conv.lin(F.dropout(x, 0.5)).chunk(2, -1)
    y = torch.cat([head(h, graph) for head, h in zip(conv.heads, parts, strict=True)], -1)
    torch.testing.assert_close(dropped, F.gelu(F.layer_norm(y, (4,))))


def test_norm_and_activation_see_the_rows_of_interest_alone(graph):
    x, seen = torch.randn(7, 5), []
    norm = lambda size: nn.BatchNorm1d(size, track_running_stats=False)  # noqa: E731
    conv = make(norm=norm, activation=lambda y: (seen.append(len(y)), y.tanh())[1])
    plain = copy.deepcopy(conv)
    plain.norm = plain.activation = None
    expected = conv.norm(plain(x, graph)[2:5]).tanh()
    torch.testing.assert_close(conv(x, graph, rows=slice(2, 5)), expected)
    assert seen == [3]


def test_permuted_nodes_and_relations_permute_the_result():
    index = {name: torch.randint(7, (2, 9)) for name in NAMES}
    options = {"normalize": "row", "self_loops": True, "identity": True, "zero": True}
    graph = RelationGraph.from_edge_index(index, 7, **options)
    conv, x, place = make(), torch.randn(7, 5), torch.randperm(7)
    y = conv(x, graph)

    moved = RelationGraph.from_edge_index({n: place[e] for n, e in index.items()}, 7, **options)
    back = place.argsort()
    torch.testing.assert_close(conv(x[back], moved), y[back])

    names = NAMES[::-1]
    turned = RelationGraph.from_edge_index({n: index[n] for n in names}, 7, **options)
    other = MetaGraphConv(5, 4, names, dag=conv.tensor.dag, rank=2)
    other.lin = conv.lin
    for edge, a, b in zip(
        conv.tensor.dag.edges, conv.arch_parameters(), other.arch_parameters(), strict=True
    ):
        ours, theirs = conv.tensor.choice_names[edge], other.tensor.choice_names[edge]
        b.data = a.data[[ours.index(name) for name in theirs]]
    torch.testing.assert_close(other(x, turned), y)


def test_draws_follow_one_relation_a_link_with_its_probability(graph):
    conv, x = make(DAGS["named"], rank=3), torch.randn(7, 5)
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
    conv, x = make(Dag.path(2), rank=2), torch.randn(7, 5)
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
    conv, x = make(Dag.path(1), rank=1), torch.randn(7, 5)
    (draw,) = conv.sample(temperature=0.3)
    (core,) = conv.arch_parameters()
    (gradient,) = torch.autograd.grad(conv(x, graph, draw=[draw]).sum(), core)
    edge, chosen = (0, 1), draw.choice[0, 1]
    soft = ((core.flatten().log_softmax(0) + draw.noise[edge]) / 0.3).softmax(0)
    followed = dense(graph)[conv.tensor.choice_names[edge][chosen]] @ conv.lin(x).detach()
    (expected,) = torch.autograd.grad(soft[chosen] * followed.sum(), core)
    torch.testing.assert_close(gradient, expected)


def test_draws_of_another_distribution_are_refused(graph):
    conv, x = make(Dag.complete(2)), torch.randn(7, 5)
    (draw,) = conv.sample()
    with pytest.raises(ValueError, match="a draw for the links"):
        conv(x, graph, draw=make(Dag.path(2)).sample())
    with pytest.raises(ValueError, match="does not fit"):
        conv(x, graph, draw=[replace(draw, choice={**draw.choice, (0, 1): 99})])
    with pytest.raises(ValueError, match="does not fit"):
        conv(x, graph, draw=[replace(draw, ranks=(2,))])
    with pytest.raises(ValueError, match="1 heads, but 2 draws"):
        conv(x, graph, draw=[draw, draw])


def test_epsilon_is_the_share_of_random_draws(graph):
    conv = make(Dag.path(2), rank=1, init_scale=10.0)
    best = conv.sample(epsilon=0.0)[0].choice
    g = torch.Generator().manual_seed(0)
    same = sum(conv.sample(epsilon=0.5, generator=g)[0].choice == best for _ in range(1000)) / 1000
    assert abs(same - (0.5 + 0.5 / 16)) < 0.05


@pytest.mark.parametrize("k", [1, 2, 7])
@pytest.mark.parametrize("dag", DAGS.values(), ids=DAGS)
def test_derived_is_the_mixture_of_the_best(graph, dag, k):
    conv, x = make(dag, norm=nn.LayerNorm), torch.randn(7, 5)
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
    conv, x = make(heads=2, norm=nn.LayerNorm), torch.randn(7, 5)
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
    conv, x = make().derive(2), torch.randn(7, 5)
    with torch.inference_mode():
        before = conv(x, graph)
    after = conv(x, graph)
    after.sum().backward()
    assert torch.equal(after, before)


def test_the_state_of_other_meta_graphs_is_refused(graph):
    dag, conv, x = Dag.path(2), make(), torch.randn(7, 5)
    one, two = (
        MetaGraph(dag, dict(zip(dag.edges, names, strict=True)))
        for names in (("PA", "AP"), ("AP", "PA"))
    )
    state = conv.fix(one).state_dict()
    same = make().fix(one)
    same.load_state_dict(state)
    assert torch.equal(same(x, graph), conv.fix(one)(x, graph))
    for others in (two, [one, two], [two, one]):
        with pytest.raises((ValueError, RuntimeError), match=r"other meta-graphs|Missing key"):
            make().fix(others).load_state_dict(state)
    with pytest.raises(ValueError, match="of a layer over other meta-graphs"):
        make().fix([two, one]).load_state_dict(conv.fix([one, two]).state_dict())


def test_fixed_meta_graphs_share_states_and_count_what_is_double(graph):
    dag = Dag.complete(2)
    same_twice = MetaGraph(dag, {(0, 1): "identity", (0, 2): "PA", (1, 2): "PA"})
    other = MetaGraph(dag, {(0, 1): "PA", (0, 2): "zero", (1, 2): "AP"})
    conv, x = make(dag), torch.randn(7, 5)
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


def test_one_tensor_for_each_query(graph):
    conv, h = make(DAGS["named"]), torch.randn(7, 4)
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


def test_links_may_choose_what_the_types_allow():
    conv = MetaGraphConv(5, 4, TYPES, target="A", dag=Dag.complete(4))
    names = conv.tensor.choice_names
    assert names[0, 1] == ("PA", "AP", "CP", "PC", "identity")
    assert names[0, 2] == ("PA", "AP", "CP", "PC", "identity", "zero")
    assert names[3, 4] == ("AP", "identity")
    assert names[0, 4] == ("AP", "identity", "zero")
    given = MetaGraphConv(5, 4, TYPES, dag=Dag.path(2), choices={(1, 2): ["CP"]})
    assert given.tensor.choice_names == {(0, 1): names[0, 1], (1, 2): ("CP",)}


def test_degenerate_graphs():
    conv = make()
    for nodes in (0, 1):
        empty = {name: torch.empty(2, 0, dtype=torch.long) for name in NAMES}
        graph = RelationGraph.from_edge_index(empty, nodes, identity=True, zero=True)
        for call in (conv, conv.derive(), conv.derive(2)):
            assert call(torch.randn(nodes, 5), graph).shape == (nodes, 4)
    x = torch.randn(14, 5)[::2]
    assert not x.is_contiguous()
    graph = random_graph()
    torch.testing.assert_close(conv(x, graph), conv(x.contiguous(), graph))


@pytest.mark.parametrize("k", [None, 1, 3], ids=["soft", "derived", "derived mixture"])
def test_a_compiled_layer_gives_the_same(graph, k):
    torch.compiler.reset()
    conv, x = make(), torch.randn(7, 5)
    conv = conv if k is None else conv.derive(k)
    compiled = torch.compile(conv, backend="aot_eager", fullgraph=True)
    got, want = compiled(x, graph), conv(x, graph)
    torch.testing.assert_close(got, want)
    parameters = list(conv.parameters())
    gradients = (torch.autograd.grad(y.square().sum(), parameters) for y in (got, want))
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b)


def test_large_features_are_no_error(graph):
    large = torch.full((7, 5), 1e308)  # their sum overflows
    assert make()(large, graph).shape == (7, 4)


def test_copies_dtypes_and_repr(graph):
    conv, x = make(), torch.randn(7, 5)
    for twin in (copy.deepcopy(conv), pickle.loads(pickle.dumps(conv))):
        assert torch.equal(twin(x, graph), conv(x, graph))
    single = copy.deepcopy(conv).float()
    torch.testing.assert_close(
        single(x.float(), graph.to(torch.float32)).double(), conv(x, graph), rtol=1e-4, atol=1e-5
    )
    assert str(conv).startswith("MetaGraphConv(\n  5, 4, heads=1")


def test_learned_edge_values_receive_gradients_in_every_mode(graph):
    conv, x = make(), torch.randn(7, 5)
    values = graph.values().clone().requires_grad_()
    learned = graph.with_values(values)
    derived = conv.derive()
    for _ in range(2):  # a second backward pass must work too
        for y in (conv(x, learned), derived(x, learned), conv(x, learned, draw=conv.sample())):
            (grad,) = torch.autograd.grad(y.square().sum(), values)
            assert (grad != 0).any()


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: make(heads=3), ValueError, "multiple of heads"),
        (lambda: make(choices={(0, 1): []}), ValueError, r"link \(0, 1\) has no relation"),
        (lambda: make(choices={(0, 1): ["YZ"]}), ValueError, "'YZ'"),
        (lambda: make(choices={(0, 9): ["PA"]}), ValueError, r"\(0, 9\)"),
        (lambda: make(target="A"), ValueError, "needs relations with node types"),
        (lambda: MetaGraphConv(5, 4, TYPES, target="V"), ValueError, "'V' is not among"),
        (lambda: MetaGraphConv(5, 4, "PA"), TypeError, "metadata"),
        (lambda: MetaGraphConv(5, 4, []), TypeError, "metadata"),
        (lambda: MetaGraphConv(5, 4, ["PA", "PA"]), ValueError, "same name"),
        (
            lambda: MetaGraphConv(5, 4, [("a", "to", "b"), ("b", "to", "a")]),
            TypeError,
            r"\(source type, name, destination type\), got 'b'",
        ),
        (
            lambda: MetaGraphConv(5, 4, ([("a", "to", "b")], ["a", "b"])),
            TypeError,
            "are no names of node types",
        ),
        (
            lambda: MetaGraphConv(5, 4, {"PA": ("A", "PA", "P")}),
            TypeError,
            r"'PA': expected \(source type, destination type\), got \('A', 'PA', 'P'\)",
        ),
        (lambda: MetaGraphConv(5, 4, {"PA": "AP"}), TypeError, "got 'AP'"),
        (lambda: make().meta_paths(-1), ValueError, "k must be a positive integer, got -1"),
        (lambda: make().derive(2).meta_graphs(-1), ValueError, "k must be a positive integer"),
        (lambda: MetaGraphConv(-1, 4, NAMES), ValueError, "in_channels"),
        (lambda: make(dropout=1.5), ValueError, "dropout"),
        (lambda: make().sample(epsilon=-1.0), ValueError, "epsilon"),
        (lambda: make().sample(temperature=0.0), ValueError, "temperature"),
        (lambda: make().fix([]), ValueError, "at least one"),
        (lambda: make().fix(*[MetaGraph(Dag.path(1), {(0, 1): "PA"})] * 2), ValueError, "heads"),
        (lambda: make().fix(MetaGraph(Dag.path(1), {(0, 1): "Y"})), ValueError, "'Y'"),
        (lambda: make().fix(MetaGraph(Dag.path(1), {(0, 1): "zero"})), ValueError, "no path"),
    ],
)
def test_bad_settings(build, error, message):
    with pytest.raises(error, match=message):
        build()


def test_bad_input(graph):
    conv, x = make(), torch.randn(7, 5)
    broken = x.clone()
    broken[3, 2] = float("nan")
    for given, error, message in [
        (broken, ValueError, "NaN"),
        (x / 0, ValueError, "infinity"),
        (x.long(), TypeError, "floating-point"),
        (x[:, :3], ValueError, r"\(nodes, 5\), got \(7, 3\)"),
        (x[:4], ValueError, "N = 7"),
        (x[0], ValueError, "shape"),
        ({"A": x}, ValueError, "metadata"),
        (None, TypeError, "tensor"),
    ]:
        with pytest.raises(error, match=message):
            conv(given, graph)
    with pytest.raises(ValueError, match="the graph has"):
        conv(x, random_graph(names=("PA", "AP")))
    with pytest.raises(TypeError, match="RelationGraph"):
        conv(x, {})
    with pytest.raises(ValueError, match="rows are of a matrix"):
        conv({"A": x}, graph, rows=slice(3))
