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
        (x, {**edges, ("author", "likes", "venue"): edges[EDGE_TYPES[0]]}, ValueError, "likes"),
        ({"author": x["author"]}, edges, ValueError, "features of the node types"),
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
