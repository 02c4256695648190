"""MetaGraphConv over a RelationGraph, against the sums that it stands for."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tensus_tn import Dag, RelationGraph
from tensus_tn.nn import MetaGraph, MetaGraphConv
from tests.nn.meta_graphs import DAGS, NAMES, TYPES, dense, make_conv, random_graph

pytestmark = pytest.mark.usefixtures("double")


def test_gradients(graph):
    conv, x = make_conv(DAGS["named"]), torch.randn(7, 5, requires_grad=True)
    cores = conv.arch_parameters()
    assert torch.autograd.gradcheck(lambda x, *_: conv(x, graph), (x, *cores))
    draw = conv.sample(epsilon=0.0)
    assert torch.autograd.gradcheck(lambda x, *_: conv(x, graph, draw=draw), (x, *cores))


def test_parameters_are_in_the_state_dict_and_in_one_of_two_groups(graph):
    conv, other = make_conv(heads=2, norm=nn.LayerNorm), make_conv(heads=2, norm=nn.LayerNorm)
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
    conv, x = (
        make_conv(heads=2, dropout=0.5, norm=nn.LayerNorm, activation=F.gelu),
        torch.randn(7, 5),
    )
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


@pytest.mark.parametrize("mode", ["soft", "sampled", "derived"])
def test_divided_states_are_means_over_paths(graph, mode):
    conv, x = make_conv(heads=2, divide=True), torch.randn(7, 5)
    draws = conv.sample(epsilon=0.0) if mode == "sampled" else None
    conv = conv.derive(2) if mode == "derived" else conv
    parts = []
    for k, (head, h) in enumerate(zip(conv.heads, conv.lin(x).chunk(2, -1), strict=True)):
        draw = () if draws is None else (draws[k],)
        parts.append(head(h, graph, *draw) / (head(torch.ones(7, 1), graph, *draw) + 1e-6))
    torch.testing.assert_close(conv(x, graph, draw=draws), torch.cat(parts, -1))
    alike = torch.ones(7, 5)
    torch.testing.assert_close(conv(alike, graph, draw=draws), conv.lin(alike), rtol=0, atol=1e-4)


def test_divided_after_the_product_of_relations_as_they_are_it_is_gtn():
    graph = random_graph(normalize=None, self_loops=False)
    conv, x = make_conv(Dag.path(3), rank=1, divide=True), torch.randn(7, 5)
    product = torch.eye(7)
    for core in conv.tensor.cores().values():
        relations = [dense(graph)[name] for name in (*NAMES, "identity")]
        soft = sum(w * a for w, a in zip(core.flatten(), relations, strict=True))
        product = soft @ product
    expected = product / product.sum(1, keepdim=True) @ conv.lin(x)
    torch.testing.assert_close(conv(x, graph), expected, rtol=1e-4, atol=1e-4)


def test_divided_states_are_zero_where_no_path_arrives():
    edges = {name: torch.tensor([[0], [1]]) for name in NAMES}
    graph = RelationGraph.from_edge_index(edges, 7, identity=True, zero=True, dtype=torch.float64)
    conv = make_conv(Dag.path(1), choices={(0, 1): NAMES}, divide=True)
    y = conv(torch.randn(7, 5), graph)
    assert (y[1] != 0).all()
    assert (y[[0, 2, 3, 4, 5, 6]] == 0).all()


def test_without_an_affine_map_features_are_propagated_as_they_are(graph):
    conv, x = MetaGraphConv(4, 4, NAMES, affine=False, heads=2), torch.randn(7, 4)
    parts = [head(h, graph) for head, h in zip(conv.heads, x.chunk(2, -1), strict=True)]
    torch.testing.assert_close(conv(x, graph), torch.cat(parts, -1))
    assert conv.weight_parameters() == []
    with pytest.raises(ValueError, match=r"in_channels \(5\) must be out_channels \(4\)"):
        MetaGraphConv(5, 4, NAMES, affine=False)


def test_norm_and_activation_see_the_rows_of_interest_alone(graph):
    x, seen = torch.randn(7, 5), []
    norm = lambda size: nn.BatchNorm1d(size, track_running_stats=False)  # noqa: E731
    conv = make_conv(norm=norm, activation=lambda y: (seen.append(len(y)), y.tanh())[1])
    plain = copy.deepcopy(conv)
    plain.norm = plain.activation = None
    expected = conv.norm(plain(x, graph)[2:5]).tanh()
    torch.testing.assert_close(conv(x, graph, rows=slice(2, 5)), expected)
    assert seen == [3]


def test_permuted_nodes_and_relations_permute_the_result():
    index = {name: torch.randint(7, (2, 9)) for name in NAMES}
    options = {"normalize": "row", "self_loops": True, "identity": True, "zero": True}
    graph = RelationGraph.from_edge_index(index, 7, **options)
    conv, x, place = make_conv(), torch.randn(7, 5), torch.randperm(7)
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


def test_degenerate_graphs():
    conv = make_conv()
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
    conv, x = make_conv(), torch.randn(7, 5)
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
    assert make_conv()(large, graph).shape == (7, 4)


def test_copies_dtypes_and_repr(graph):
    conv, x = make_conv(), torch.randn(7, 5)
    for twin in (copy.deepcopy(conv), pickle.loads(pickle.dumps(conv))):
        assert torch.equal(twin(x, graph), conv(x, graph))
    single = copy.deepcopy(conv).float()
    torch.testing.assert_close(
        single(x.float(), graph.to(torch.float32)).double(), conv(x, graph), rtol=1e-4, atol=1e-5
    )
    assert str(conv).startswith("MetaGraphConv(\n  5, 4, heads=1")


def test_learned_edge_values_receive_gradients_in_every_mode(graph):
    conv, x = make_conv(), torch.randn(7, 5)
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
        (lambda: make_conv(heads=3), ValueError, "multiple of heads"),
        (lambda: make_conv(choices={(0, 1): []}), ValueError, r"link \(0, 1\) has no relation"),
        (lambda: make_conv(choices={(0, 1): ["YZ"]}), ValueError, "'YZ'"),
        (lambda: make_conv(choices={(0, 9): ["PA"]}), ValueError, r"\(0, 9\)"),
        (lambda: make_conv(target="A"), ValueError, "needs relations with node types"),
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
        (lambda: make_conv().meta_paths(-1), ValueError, "k must be a positive integer, got -1"),
        (lambda: make_conv().derive(2).meta_graphs(-1), ValueError, "k must be a positive integer"),
        (lambda: MetaGraphConv(-2, 4, NAMES), ValueError, "in_channels"),
        (lambda: make_conv(dropout=1.5), ValueError, "dropout"),
        (lambda: make_conv().sample(epsilon=-1.0), ValueError, "epsilon"),
        (lambda: make_conv().sample(temperature=0.0), ValueError, "temperature"),
        (lambda: make_conv().fix([]), ValueError, "at least one"),
        (
            lambda: make_conv().fix(*[MetaGraph(Dag.path(1), {(0, 1): "PA"})] * 2),
            ValueError,
            "heads",
        ),
        (lambda: make_conv().fix(MetaGraph(Dag.path(1), {(0, 1): "Y"})), ValueError, "'Y'"),
        (lambda: make_conv().fix(MetaGraph(Dag.path(1), {(0, 1): "zero"})), ValueError, "no path"),
    ],
)
def test_bad_settings(build, error, message):
    with pytest.raises(error, match=message):
        build()


def test_bad_input(graph):
    conv, x = make_conv(), torch.randn(7, 5)
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
