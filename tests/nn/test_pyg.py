"""The layer in PyG's calling convention, against the real library."""

import pytest
import torch

from tensus_tn import Dag, RelationGraph
from tensus_tn.nn import MetaGraphConv, MetaGraphNet

pyg = pytest.importorskip("torch_geometric")
from torch_geometric.data import HeteroData  # noqa: E402

COUNTS = {"author": 6, "paper": 9, "venue": 2, "term": 4}
SIZES = {"author": 3, "paper": 5, "venue": 2, "term": 7}
EDGE_TYPES = [
    ("author", "writes", "paper"),
    ("paper", "rev_writes", "author"),
    ("paper", "in", "venue"),
    ("venue", "rev_in", "paper"),
    ("term", "in", "paper"),  # terms only send
]


@pytest.fixture
def data():
    data = HeteroData()
    for kind, count in COUNTS.items():
        data[kind].x = torch.randn(count, SIZES[kind])
    for kind in EDGE_TYPES:
        ends = [torch.randint(COUNTS[end], (12,)) for end in (kind[0], kind[2])]
        data[kind].edge_index = torch.stack(ends)
    return data


def make(data, in_channels=SIZES, **options):
    return MetaGraphConv(in_channels, 8, data.metadata(), **options)


def test_all_forms_of_a_graph_give_the_same(data):
    conv = make(data, dag=Dag.complete(3))
    graph = RelationGraph.from_hetero_data(
        data, normalize="row", self_loops=True, identity=True, zero=True
    )
    h = torch.cat([conv.lin.maps[k](data[kind].x) for k, kind in enumerate(COUNTS)])
    y = conv.heads[0](h, graph)
    for form in (data.edge_index_dict, data, graph, conv.relation_graph(data)):
        out = conv(data.x_dict, form)
        assert list(out) == list(COUNTS)
        for kind, rows in graph.node_types.items():
            torch.testing.assert_close(out[kind], y[rows])
            torch.testing.assert_close(conv(data)[kind], y[rows])


def test_a_network_takes_the_same_forms(data):
    net = MetaGraphNet(dict(reversed(SIZES.items())), 8, 3, data.metadata(), "paper").eval()
    graph = net.layers[0].relation_graph(data)
    expected = net(data.x_dict, graph)
    assert expected.shape == (9, 3)
    for form in (data.edge_index_dict, data):
        torch.testing.assert_close(net(data.x_dict, form), expected)
    torch.testing.assert_close(net(data), expected)
    with pytest.raises(ValueError, match="'paper': 3"):
        net({**data.x_dict, "paper": data["paper"].x[:3]}, graph)
    with pytest.raises(ValueError, match="features of the node types"):
        MetaGraphNet({"paper": 5}, 8, 3, data.metadata(), "paper")


def test_every_node_type_comes_back_even_if_it_only_sends(data):
    for rank in (1, 2):
        out = make(data, rank=rank)(data.x_dict, data.edge_index_dict)
        assert {kind: tuple(h.shape) for kind, h in out.items()} == {
            kind: (count, 8) for kind, count in COUNTS.items()
        }


def test_node_types_and_their_order_come_from_the_metadata(data):
    conv = make(data)
    out = conv(data.x_dict, data.edge_index_dict)
    shuffled = {kind: data[kind].x for kind in reversed(COUNTS)}
    edges = {kind: data[kind].edge_index for kind in reversed(EDGE_TYPES)}
    again = conv(shuffled, edges)
    for kind in COUNTS:
        torch.testing.assert_close(again[kind], out[kind])


def test_one_affine_map_for_all_types_or_one_for_each(data):
    same = {kind: torch.randn(count, 4) for kind, count in COUNTS.items()}
    conv = make(data, in_channels=4, heads=2)
    assert isinstance(conv.lin, torch.nn.Linear)
    out = conv(same, data.edge_index_dict)
    stacked = conv(torch.cat(list(same.values())), conv.relation_graph(data))
    torch.testing.assert_close(torch.cat(list(out.values())), stacked)
    again = conv(dict(reversed(same.items())), data.edge_index_dict)
    torch.testing.assert_close(torch.cat(list(again.values())), stacked)
    with pytest.raises(TypeError, match="as a dict"):
        make(data)(stacked, conv.relation_graph(data))


def test_types_may_be_missing_in_a_mini_batch(data):
    conv = make(data)
    edges = dict(data.edge_index_dict)
    gone = edges.pop(EDGE_TYPES[0])
    out = conv(data.x_dict, edges)
    edges[EDGE_TYPES[0]] = gone[:, :0]
    expected = conv(data.x_dict, edges)
    for kind in COUNTS:
        torch.testing.assert_close(out[kind], expected[kind])
    empty = {**data.x_dict, "venue": torch.empty(0, 2)}
    edges = {kind: e for kind, e in edges.items() if "venue" not in kind}
    assert conv(empty, edges)["venue"].shape == (0, 8)


def test_in_place_changes_of_the_edges_are_seen(data):
    conv, edges = make(data, rank=1), data.edge_index_dict
    before = conv(data.x_dict, edges)["paper"]
    edges[EDGE_TYPES[0]][0] = (edges[EDGE_TYPES[0]][0] + 1) % COUNTS["author"]
    assert not torch.allclose(conv(data.x_dict, edges)["paper"], before)


def test_weights_of_edges_that_are_not_there_are_refused(data):
    wrong = ("paper", "inside", "venue")
    with pytest.raises(
        ValueError, match=r"weights for edges \[\('paper', 'inside', 'venue'\)\], but"
    ):
        make(data)(data.x_dict, data.edge_index_dict, {wrong: torch.rand(12)})


def test_edge_weights_of_hetero_data_are_used(data):
    conv = make(data)
    plain = conv(data.x_dict, data)
    data["paper", "in", "venue"].edge_weight = torch.rand(12) + 0.1
    weighted = conv(data.x_dict, data)
    graph = RelationGraph.from_hetero_data(
        data, normalize="row", self_loops=True, identity=True, zero=True
    )
    torch.testing.assert_close(weighted["venue"], conv(data.x_dict, graph)["venue"])
    assert not torch.allclose(weighted["venue"], plain["venue"])


def test_links_into_the_sink_end_in_the_target_type(data):
    names = make(data, target="paper").tensor.choice_names[3, 4]
    assert names == ("author__writes__paper", "venue__rev_in__paper", "term__in__paper", "identity")
    assert make(data, target="term").tensor.choice_names[3, 4] == ("identity",)


def test_learned_meta_paths_go_into_add_metapaths_and_han(data):
    from torch_geometric.nn import HANConv
    from torch_geometric.transforms import AddMetaPaths

    conv = make(data, target="author", dag=Dag.path(2))
    paths = [p.edge_types for p in conv.meta_paths(100) if len(p.edge_types) == 2]
    paths = [p for p in paths if p[0][0] == p[-1][2] == "author"]
    assert paths == [(EDGE_TYPES[0], EDGE_TYPES[1])]
    with_paths = AddMetaPaths([list(p) for p in paths], drop_orig_edge_types=True)(data)
    assert with_paths["author", "metapath_0", "author"].num_edges > 0
    han = HANConv(SIZES, 8, with_paths.metadata())
    assert han(with_paths.x_dict, with_paths.edge_index_dict)["author"].shape == (6, 8)


def test_bad_input(data):
    conv = make(data)
    x, edges = data.x_dict, data.edge_index_dict
    for given, index, error, message in [
        ({}, edges, ValueError, "features of the node types"),
        ({"author": x["author"]}, edges, ValueError, "out of range, there are 0"),
        ({**x, "topic": x["term"]}, edges, ValueError, "topic"),
        ({**x, "paper": x["paper"][:3]}, edges, ValueError, "out of range"),
        ({**x, "paper": x["paper"][:, :2]}, edges, ValueError, r"\(nodes, 5\), got \(9, 2\)"),
        ({**x, "paper": x["paper"] / 0}, edges, ValueError, "NaN"),
        ({**x, "paper": x["paper"][:3]}, conv.relation_graph(data), ValueError, "'paper': 3"),
        ({**x, "paper": None}, edges, TypeError, "features of 'paper'"),
        (x, None, TypeError, "NoneType"),
    ]:
        with pytest.raises(error, match=message):
            conv(given, index)
    with pytest.raises(ValueError, match="is not among"):
        MetaGraphConv(4, 8, (["author"], [("author", "writes", "paper")]))
    with pytest.raises(ValueError, match="features of the node types"):
        MetaGraphConv({"author": 3}, 8, data.metadata())
    with pytest.raises(ValueError, match="metadata as"):
        MetaGraphConv(4, 8, ["writes"])(x, edges)


# ---------------------------------------------------------------------------------- sizes from data


def test_sizes_are_read_off_the_first_features(data):
    torch.manual_seed(0)
    lazy = make(data, in_channels=dict.fromkeys(SIZES, -1))
    mixed = make(data, in_channels={**SIZES, "term": -1})
    for conv in (lazy, mixed, make(data, in_channels=-1)):
        out = conv(data.x_dict, data.edge_index_dict)
        assert {kind: m.in_features for kind, m in zip(SIZES, conv.lin.maps, strict=True)} == SIZES
        conv.load_state_dict(make(data).state_dict())
        out["paper"].sum().backward()
    graph = lazy.relation_graph(data)
    with pytest.raises(TypeError, match="in_channels are those of node types"):
        make(data, in_channels=-1)(torch.randn(21, 6), graph)
    one = MetaGraphConv(-1, 8, graph.relation_names)
    one(torch.randn(21, 6), graph)
    assert one.lin.in_features == 6
    with pytest.raises(ValueError, match=r"\(nodes, 6\)"):
        one(torch.randn(21, 5), graph)


def test_a_lazy_layer_is_that_of_its_weights(data):
    lazy, known = make(data, in_channels=dict.fromkeys(SIZES, -1)), make(data)
    lazy.load_state_dict(known.state_dict())
    for kind, y in known(data).items():
        torch.testing.assert_close(lazy(data)[kind], y)


def test_a_network_takes_its_sizes_from_the_data_too(data):
    for sizes in (-1, dict.fromkeys(SIZES, -1)):
        net = MetaGraphNet(sizes, 8, 3, data.metadata(), "paper")
        assert net(data).shape == (9, 3)
        assert [m.in_features for m in net.project.maps] == list(SIZES.values())
    same = {kind: torch.randn(count, 16) for kind, count in COUNTS.items()}
    assert MetaGraphNet(16, 8, 3, data.metadata(), "paper")(same, data).shape == (9, 3)


def test_what_is_not_a_size(data):
    for sizes in (0, -2, 1.5, "16", None):
        with pytest.raises(
            ValueError, match=f"in_channels must be a positive integer, got {sizes!r}"
        ):
            make(data, in_channels=sizes)
        with pytest.raises(ValueError, match="in_channels must be a positive integer"):
            MetaGraphNet(sizes, 8, 3, data.metadata(), "paper")
    with pytest.raises(ValueError, match="in_channels of 'term' must be a positive integer, got 0"):
        make(data, in_channels={**SIZES, "term": 0})
    with pytest.raises(TypeError, match=r"must be a dict \{node type: size\}"):
        MetaGraphNet(16, 8, 3, {"writes": ("author", "paper")}, "paper")
    with pytest.raises(ValueError, match="ids need the number"):
        make(data, in_channels={**SIZES, "term": -1})(
            {**data.x_dict, "term": torch.arange(4)}, data.edge_index_dict
        )


# ---------------------------------------------------------------------------------- types of a batch


def test_a_batch_may_lack_node_types(data):
    for sizes in (SIZES, dict.fromkeys(SIZES, -1)):
        conv = make(data, in_channels=sizes)
        x = {kind: h for kind, h in data.x_dict.items() if kind != "venue"}
        edges = {kind: e for kind, e in data.edge_index_dict.items() if "venue" not in kind}
        out = conv(x, edges)
        assert list(out) == ["author", "paper", "term"]
        empty = conv({**x, "venue": torch.empty(0, 2)}, edges)
        for kind in out:
            torch.testing.assert_close(out[kind], empty[kind])
    net = MetaGraphNet(SIZES, 8, 3, data.metadata(), "venue").eval()
    assert net(x, edges).shape == (0, 3)


def test_edge_types_that_the_layer_does_not_know_are_ignored(data):
    conv = make(data)
    expected = conv(data.x_dict, data.edge_index_dict)
    more = {**data.edge_index_dict, ("author", "likes", "venue"): torch.tensor([[0], [1]])}
    data["author", "likes", "venue"].edge_index = torch.tensor([[0], [1]])
    for edges in (more, data):
        for kind, y in conv(data.x_dict, edges).items():
            torch.testing.assert_close(y, expected[kind])


# ---------------------------------------------------------------------------------- forms of edges


def adj_t(index, kind):
    size = (COUNTS[kind[2]], COUNTS[kind[0]])
    ones = torch.ones(index.shape[1])
    return torch.sparse_coo_tensor(index.flip(0), ones, size).coalesce().to_sparse_csr()


def test_transposed_sparse_matrices_and_edge_index_objects_are_edges(data):
    from torch_geometric import EdgeIndex

    conv = make(data)
    expected = conv(data.x_dict, data.edge_index_dict)
    forms = {
        "CSR": {kind: adj_t(e, kind) for kind, e in data.edge_index_dict.items()},
        "COO": {kind: adj_t(e, kind).to_sparse_coo() for kind, e in data.edge_index_dict.items()},
        "EdgeIndex": {
            kind: EdgeIndex(e, sparse_size=(COUNTS[kind[0]], COUNTS[kind[2]]))
            for kind, e in data.edge_index_dict.items()
        },
    }
    for edges in forms.values():
        for kind, y in conv(data.x_dict, edges).items():
            torch.testing.assert_close(y, expected[kind])


def test_hetero_data_after_to_sparse_tensor(data):
    from torch_geometric.transforms import ToSparseTensor

    for kind in EDGE_TYPES:  # it forgets how often an edge is there
        data[kind].edge_index = data[kind].edge_index.unique(dim=1)
    conv = make(data)
    expected = conv(data)
    sparse = ToSparseTensor(layout=torch.sparse_csr)(data)
    assert "edge_index" not in sparse[EDGE_TYPES[0]]
    for kind, y in conv(sparse).items():
        torch.testing.assert_close(y, expected[kind])


def test_sparse_tensors_of_torch_sparse(data):
    torch_sparse = pytest.importorskip("torch_sparse")
    sizes = {kind: len(x) for kind, x in data.x_dict.items()}
    conv, edges, weights = make(data), {}, {}
    for kind, index in data.edge_index_dict.items():
        index = index.unique(dim=1)
        weights[kind] = torch.rand(index.shape[1], dtype=torch.float64) + 0.1
        data[kind].edge_index = index
        edges[kind] = torch_sparse.SparseTensor(
            row=index[1],
            col=index[0],
            value=weights[kind],
            sparse_sizes=(sizes[kind[2]], sizes[kind[0]]),
        )
    expected = conv(data.x_dict, data.edge_index_dict, weights)
    for kind, y in conv(data.x_dict, edges).items():
        torch.testing.assert_close(y, expected[kind])


class SparseTensor:
    """What torch_sparse's class offers, as far as it is used."""

    def __init__(self, row, col, value):
        self.parts = row, col, value

    def sparse_sizes(self):
        raise NotImplementedError

    def coo(self):
        return self.parts


def test_sparse_tensors_by_what_they_can_be_asked(data):
    conv = make(data)
    edges = {k: SparseTensor(e[1], e[0], None) for k, e in data.edge_index_dict.items()}
    expected = conv(data)
    for kind, y in conv(data.x_dict, edges).items():
        torch.testing.assert_close(y, expected[kind])


# ---------------------------------------------------------------------------------- edge weights


def weights_of(data, **options):
    return {
        kind: (torch.rand(e.shape[1], dtype=torch.float64) + 0.1).requires_grad_(**options)
        for kind, e in data.edge_index_dict.items()
    }


@pytest.mark.parametrize("normalize", [None, "row", "sym"])
@pytest.mark.parametrize("self_loops", [False, True])
def test_gradients_of_edge_weights(data, normalize, self_loops):
    conv = make(data, normalize=normalize, self_loops=self_loops, dag=Dag.path(2)).double()
    x = {kind: h.double() for kind, h in data.x_dict.items()}
    weights = weights_of(data)

    def run(*values):
        out = conv(x, data.edge_index_dict, dict(zip(weights, values, strict=True)))
        return torch.cat(list(out.values()))

    constant = {kind: w.detach() for kind, w in weights.items()}
    folded = torch.cat(list(conv(x, data.edge_index_dict, constant).values()))
    torch.testing.assert_close(run(*weights.values()), folded)
    torch.autograd.gradcheck(run, tuple(weights.values()), fast_mode=True)


def test_weights_may_be_those_of_some_edge_types(data):
    conv, weights = make(data), {EDGE_TYPES[2]: torch.rand(12) + 0.1}
    out = conv(data.x_dict, data.edge_index_dict, weights)
    data[EDGE_TYPES[2]].edge_weight = weights[EDGE_TYPES[2]]
    for kind, y in conv(data).items():
        torch.testing.assert_close(out[kind], y)
    net = MetaGraphNet(SIZES, 8, 3, data.metadata(), "venue").eval()
    torch.testing.assert_close(net(data.x_dict, data.edge_index_dict, weights), net(data))
    with pytest.raises(ValueError, match="one value for each of 12 edges"):
        conv(data.x_dict, data.edge_index_dict, {EDGE_TYPES[2]: torch.rand(3)})
    with pytest.raises(ValueError, match="with_values"):
        conv(data.x_dict, conv.relation_graph(data), weights)


def test_edge_attributes_that_would_be_ignored_are_refused(data):
    data[EDGE_TYPES[0]].edge_attr = torch.rand(12, 3)
    with pytest.raises(ValueError, match="edge_attr, which would be ignored"):
        make(data)(data)
    data[EDGE_TYPES[0]].edge_weight = data[EDGE_TYPES[0]].edge_attr.mean(1)
    make(data)(data)


class Explained(torch.nn.Module):
    """A network whose edges GNNExplainer can mask: it looks for `MessagePassing` by edge type."""

    def __init__(self, net, edge_types):
        super().__init__()
        from torch_geometric.nn import MessagePassing

        self.net = net
        self.masks = torch.nn.ModuleDict({"__".join(kind): MessagePassing() for kind in edge_types})

    def forward(self, x_dict, edge_index_dict):
        masks = {kind: self.masks["__".join(kind)]._edge_mask for kind in edge_index_dict}
        weights = {kind: mask.sigmoid() for kind, mask in masks.items() if mask is not None}
        return self.net(x_dict, edge_index_dict, weights)


def test_gnn_explainer_finds_the_edge_that_matters():
    from torch_geometric.explain import Explainer, GNNExplainer

    torch.manual_seed(0)
    data = HeteroData()
    data["a"].x, data["b"].x = torch.tensor([[5.0], [0.0], [0.0], [0.0]]), torch.zeros(2, 1)
    kind = ("a", "to", "b")
    data[kind].edge_index = torch.tensor([[0, 1, 2, 3], [0, 0, 1, 1]])  # only node 0 has features
    net = MetaGraphNet(
        1, 8, 2, data.metadata(), "b", dag=Dag.path(1), normalize=None, divide=False, dropout=0.0,
        choices={(0, 1): ["a__to__b"]},
    )  # fmt: skip
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
    for _ in range(50):  # node 0 of b is of class 1 because of the edge from node 0 of a
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(data), torch.tensor([1, 0]))
        loss.backward()
        optimizer.step()
    explainer = Explainer(
        Explained(net.eval(), [kind]),
        GNNExplainer(epochs=60, lr=0.1, edge_size=0.1, edge_ent=0.0),
        explanation_type="model",
        edge_mask_type="object",
        node_mask_type=None,
        model_config={
            "mode": "multiclass_classification",
            "task_level": "node",
            "return_type": "raw",
        },
    )
    found = explainer(data.x_dict, data.edge_index_dict, index=0)
    mask = found[kind].edge_mask
    assert mask[0] > mask[1] + 0.1
    assert mask[2:].tolist() == [0, 0]  # these do not end in the node that is asked for


# ---------------------------------------------------------------------------------- converted once


def test_a_graph_is_converted_once(data):
    conv, other = make(data), make(data, rank=1)
    graph = conv.relation_graph(data)
    assert conv.relation_graph(data) is graph
    assert other.relation_graph(data) is graph
    assert conv.relation_graph(data.edge_index_dict, COUNTS) is graph
    assert make(data, self_loops=False).relation_graph(data) is not graph
    assert conv.double().relation_graph(data).dtype == torch.float64


def test_a_changed_graph_is_converted_anew(data):
    conv = make(data)
    graph = conv.relation_graph(data)
    data[EDGE_TYPES[0]].edge_index[0, 0] = 5  # in place
    changed = conv.relation_graph(data)
    assert changed is not graph
    data[EDGE_TYPES[0]].edge_index = data[EDGE_TYPES[0]].edge_index.clone()
    assert conv.relation_graph(data) is not changed
    data["author"].x = torch.randn(7, 3)
    assert dict(conv.relation_graph(data).node_counts)["author"] == 7


def test_the_cache_is_bounded_forgets_and_can_be_turned_off(data):
    from tensus_tn.nn import graph_cache, set_graph_cache_size

    conv = make(data)
    set_graph_cache_size(2)
    try:
        batches = [{EDGE_TYPES[0]: torch.tensor([[k], [k]])} for k in range(3)]
        graphs = [conv.relation_graph(edges, COUNTS) for edges in batches]
        assert len(graph_cache._graphs) == 2
        assert conv.relation_graph(batches[2], COUNTS) is graphs[2]
        assert conv.relation_graph(batches[0], COUNTS) is not graphs[0]
        batches.clear()
        assert not graph_cache._graphs
        set_graph_cache_size(0)
        assert conv.relation_graph(data) is not conv.relation_graph(data)
        with pytest.raises(ValueError, match="non-negative integer"):
            set_graph_cache_size(-1)
    finally:
        set_graph_cache_size(16)


def test_tensors_that_count_no_changes_are_not_cached(data):
    with torch.inference_mode():
        edges = {EDGE_TYPES[0]: torch.tensor([[0], [1]])}
        assert make(data).relation_graph(edges, COUNTS) is not make(data).relation_graph(
            edges, COUNTS
        )


# ---------------------------------------------------------------------------------- compiled


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"normalize": None},
        {"self_loops": False},
        {"normalize": "sym"},
        {"normalize": "sym", "self_loops": False},
        {"normalize": {EDGE_TYPES[0]: "sym", EDGE_TYPES[1]: "row"}},
    ],
)
def test_layers_compile_from_their_edges_to_one_graph(data, options):
    torch.compiler.reset()
    conv = make(data, dag=Dag.path(2), **options)
    compiled = torch.compile(conv, fullgraph=True, backend="aot_eager")
    for edges in (data.edge_index_dict, {k: e.flip(1) for k, e in data.edge_index_dict.items()}):
        expected, got = (layer(data.x_dict, edges) for layer in (conv, compiled))
        for kind in COUNTS:
            torch.testing.assert_close(got[kind], expected[kind])
        grads = [
            torch.autograd.grad(
                sum(y.square().sum() for y in out.values()), list(conv.parameters())
            )
            for out in (expected, got)
        ]
        for grad, right in zip(*grads, strict=True):
            torch.testing.assert_close(grad, right)


@pytest.mark.slow
def test_ids_out_of_range_are_an_error_in_a_compiled_layer(data):
    torch.compiler.reset()
    compiled = torch.compile(make(data, dag=Dag.path(1)), fullgraph=True, backend="aot_eager")
    edges = {**data.edge_index_dict, EDGE_TYPES[0]: torch.tensor([[0], [9]])}
    with pytest.raises(RuntimeError, match="receiving node 9 is out of range, there are 9"):
        compiled(data.x_dict, edges)


@pytest.mark.slow
@pytest.mark.parametrize("normalize", ["row", "sym"])
@pytest.mark.parametrize("strict", [True, False])
def test_layers_are_exported_from_their_edges(data, strict, normalize):
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = make(data, dag=Dag.path(2), normalize=normalize)

        def forward(self, features, indices):
            x = dict(zip(COUNTS, features, strict=True))
            return self.conv(x, dict(zip(EDGE_TYPES, indices, strict=True)))

    layer = Layer()
    arguments = (list(data.x_dict.values()), list(data.edge_index_dict.values()))
    program = torch.export.export(layer, arguments, strict=strict)
    other = (arguments[0], [index.flip(1) for index in arguments[1]])
    for given in (arguments, other):
        for kind, y in program.module()(*given).items():
            torch.testing.assert_close(y, layer(*given)[kind])
