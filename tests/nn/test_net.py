"""MetaGraphNet against the network of DiffMG, written out."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tensus_tn import Dag, RelationGraph
from tensus_tn.nn import DIFFMG, MetaGraph, MetaGraphConv, MetaGraphNet, PairBias
from tests.nn.meta_graphs import SIZES, TYPES, dense, sink_state

# The one that DiffMG found on DBLP, in its own order of links and operators.
OPERATORS = ["PA", "AP", "PC", "CP", "identity", "zero"]
LINKS = [(0, 1), (1, 2), (2, 3), (3, 4), (0, 2), (0, 3), (1, 3), (0, 4), (1, 4), (2, 4)]
FOUND = MetaGraph(
    Dag.complete(4),
    {e: OPERATORS[i] for e, i in zip(LINKS, [4, 2, 1, 1, 5, 5, 2, 5, 5, 1], strict=True)},
)


def make(**options):
    return MetaGraphNet(SIZES, 8, 3, TYPES, "A", **{"dropout": 0.0, **options})


@pytest.mark.parametrize("norm", ["affine", "plain", "none"])
@pytest.mark.parametrize("tanh", [True, False])
def test_it_expresses_the_network_of_diffmg(typed_graph, x, norm, tanh):
    norms = {"affine": nn.LayerNorm, "plain": partial(nn.LayerNorm, elementwise_affine=False)}
    changes = {"norm": norms.get(norm), "input_activation": torch.tanh if tanh else None}
    net = make(**{**DIFFMG, **changes}, state_dropout=0.4)
    net = net.fix(FOUND)
    net.reset_parameters()
    torch.manual_seed(7)
    y = net(x, typed_graph)

    state = net.state_dict()
    h = torch.cat(
        [
            F.linear(x[kind], state[f"project.maps.{k}.weight"], state[f"project.maps.{k}.bias"])
            for k, kind in enumerate(SIZES)
        ]
    )
    torch.manual_seed(7)
    h = F.dropout(h.tanh() if tanh else h, 0.4)
    h = F.linear(h, state["convs.0.lin.weight"], state["convs.0.lin.bias"])
    matrices = {name: a.float() for name, a in dense(typed_graph).items()}
    h = sink_state(matrices, FOUND.dag, h, FOUND.relations)
    if norm != "none":
        affine = [state.get(f"convs.0.norm.{name}") for name in ("weight", "bias")]
        h = F.layer_norm(h, (8,), *affine)
    h = F.gelu(h)[:4]
    expected = F.linear(h, state["head.weight"], state["head.bias"])
    torch.testing.assert_close(y, expected)
    assert len(state) == 6 + 2 + 2 * (norm == "affine") + 2 + 1  # the last one: which meta-graph


def test_its_defaults_are_two_dropouts_relu_and_a_head_of_two_layers(typed_graph, x):
    net = MetaGraphNet(SIZES, 8, 3, TYPES, "A")
    torch.manual_seed(7)
    y = net(x, typed_graph)

    state = net.state_dict()
    torch.manual_seed(7)
    h = torch.cat(
        [
            F.linear(
                F.dropout(x[kind], 0.7),
                *(state[f"project.maps.{k}.{p}"] for p in ("weight", "bias")),
            )
            for k, kind in enumerate(SIZES)
        ]
    )
    search = net.layers[0].heads[0]
    h = search(h, typed_graph) / (search(torch.ones(12, 1), typed_graph) + 1e-6)
    h = F.dropout(F.relu(h[:4]), 0.7)
    h = F.relu(F.linear(h, state["head.0.weight"], state["head.0.bias"]))
    expected = F.linear(h, state["head.2.weight"], state["head.2.bias"])
    torch.testing.assert_close(y, expected)
    assert torch.equal(net.eval()(x, typed_graph), net(x, typed_graph))


def test_layers_bind_only_the_last_to_the_target_type(typed_graph, x):
    net = make(num_layers=2, dag=Dag.path(2), rank=2, heads=2)
    first, last = (conv.tensor.choice_names[1, 2] for conv in net.layers)
    assert last == ("AP", "identity")
    assert first == ("PA", "AP", "CP", "PC", "identity")
    net(x, typed_graph).square().sum().backward()
    assert all((core.grad != 0).any() for core in net.arch_parameters())
    assert len(net.arch_parameters()) == 8
    both = {*map(id, net.arch_parameters()), *map(id, net.weight_parameters())}
    assert both == {id(p) for p in net.parameters()}


def test_the_same_draw_serves_two_passes(typed_graph, x):
    net = make(num_layers=2, rank=2, dropout=0.0)
    draw = net.sample(epsilon=1.0)
    assert torch.equal(net(x, typed_graph, draw=draw), net(x, typed_graph, draw=draw))
    net(x, typed_graph, draw=draw).square().sum().backward()
    assert any((core.grad != 0).any() for core in net.arch_parameters())


def test_one_coin_for_all_layers():
    net = make(num_layers=3, rank=1, dag=Dag.path(1), init_scale=10.0)
    best = [draw[0].choice for draw in net.sample(epsilon=0.0)]
    g = torch.Generator().manual_seed(0)
    draws = [net.sample(epsilon=0.5, generator=g) for _ in range(400)]
    same = sum([d[0].choice for d in draw] == best for draw in draws) / 400
    assert same > 0.4  # with a coin for each layer it would be about an eighth, and some luck


def test_derived_networks_keep_their_weights_and_stand_alone(typed_graph, x):
    net = make(num_layers=2, rank=2).eval()
    derived = net.derive(2)
    assert len(derived.arch_parameters()) == 2
    for name, value in derived.state_dict().items():
        if "heads" not in name:
            assert torch.equal(value, net.state_dict()[name])
    before = net(x, typed_graph)
    derived.reset_parameters()
    assert torch.equal(net(x, typed_graph), before)
    again = net.fix(*(conv.meta_graphs(2) for conv in net.layers))
    again.load_state_dict(derived.state_dict())
    torch.testing.assert_close(again(x, typed_graph), derived(x, typed_graph))
    assert derived.meta_graph(1) == net.meta_graph(1)


def test_bad_input(typed_graph, x):
    net = make()
    broken = {**x, "P": x["P"] * float("nan")}
    for given, message in [
        (broken, "NaN"),
        ({"A": x["A"], "P": x["P"]}, "N = 12"),
        ({**x, "V": x["A"]}, "'V'"),
        ({**x, "A": x["P"]}, r"\(nodes, 3\), got \(6, 5\)"),
        ({**x, "A": x["A"][:2]}, "N = 12"),
        ({**x, "A": torch.tensor([0, 1, 2, 3])}, "feature id 3 is out of range, there are 3"),
        ({**x, "A": torch.tensor([0, 1, -2, 1])}, "feature id -2"),
    ]:
        with pytest.raises(ValueError, match=message):
            net(given, typed_graph)
    with pytest.raises(ValueError, match="'V' is not among"):
        MetaGraphNet(SIZES, 8, 3, TYPES, "V")
    with pytest.raises(ValueError, match="head must be 'mlp' or 'linear', got 'deep'"):
        make(head="deep")
    with pytest.raises(ValueError, match=r"dropout must be in \[0, 1\), got 1"):
        make(dropout=1)
    with pytest.raises(ValueError, match="num_layers"):
        make(num_layers=0)
    with pytest.raises(ValueError, match="layers"):
        net.fix(FOUND, FOUND)
    with pytest.raises(ValueError, match="epsilon"):
        net.sample(epsilon=2.0)
    with pytest.raises(TypeError, match="features of 'C'"):
        net({**x, "C": None}, typed_graph)


def test_node_types_of_the_graph_stand_in_the_order_of_the_network():
    edges = {("a", "to", "b"): torch.tensor([[0, 1], [0, 0]])}
    x = {"a": torch.randn(2, 3), "b": torch.randn(1, 3)}
    for metadata in ((["a", "b"], list(edges)), {"a__to__b": ("a", "b")}):
        net = MetaGraphNet({"a": 3, "b": 3}, 8, 2, metadata, "b").eval()
        right, wrong = (
            RelationGraph.from_edge_index(edges, counts, identity=True, zero=True)
            for counts in ({"a": 2, "b": 1}, {"b": 1, "a": 2})
        )
        assert torch.equal(net(dict(reversed(x.items())), right), net(x, right))
        with pytest.raises(ValueError, match=r"but the graph has \{'b': 1, 'a': 2\}"):
            net(x, wrong)


def test_rows_are_those_of_the_whole_output(typed_graph, x):
    net = MetaGraphNet(SIZES, 8, 3, TYPES, "P", num_layers=2).eval()
    wanted = torch.tensor([4, 0, 4])
    draw = net.sample(epsilon=None)
    for model, options in [(net, {}), (net, {"draw": draw}), (net.derive(2), {})]:
        whole = model(x, typed_graph, **options)[wanted]
        torch.testing.assert_close(model(x, typed_graph, rows=wanted, **options), whole)
    with pytest.raises(ValueError, match="P node 6 is out of range, there are 6"):
        net(x, typed_graph, rows=torch.tensor([6]))


@pytest.mark.parametrize(
    "make",
    [
        lambda: MetaGraphConv(4, 8, ["AP"], rank=10**9),
        lambda: MetaGraphConv(10**6, 10**6, ["AP"]),
        lambda: MetaGraphConv({"a": 10**6}, 10**6, (["a"], [("a", "to", "a")])),
        lambda: MetaGraphNet({"a": 2}, 8, 2, (["a"], [("a", "to", "a")]), "a", rank=10**9),
        lambda: MetaGraphNet({"a": 2}, 10**6, 2, (["a"], [("a", "to", "a")]), "a"),
        lambda: MetaGraphNet({"a": 2}, 10**4, 10**9, (["a"], [("a", "to", "a")]), "a"),
        lambda: PairBias((10**12, 4)),
    ],
)
def test_sizes_beyond_the_memory_are_refused_by_name(make):
    with pytest.raises(ValueError, match=r"take [\d,]+ bytes, more than the .* bytes of memory"):
        make()
