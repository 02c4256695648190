"""Graphs of PyG and DGL as data sets."""

from types import SimpleNamespace

import pytest
import torch

from tensus_tn.data import (
    from_dgl,
    from_hetero_data,
    planted,
)


def assert_same(one, two):
    assert one.node_counts == two.node_counts
    assert one.metadata == two.metadata
    for name, relation in one.relations.items():
        assert (relation.edges == two.relations[name].edges).all()
    assert (one.target.labels == two.target.labels).all()
    for split, nodes in one.target.nodes.items():
        assert (nodes.sort().values == two.target.nodes[split]).all()
    for kind, x in one.features.items():
        assert (x == two.features[kind]).all()


def test_through_hetero_data_and_back():
    pytest.importorskip("torch_geometric")
    data = planted(num_nodes=20)
    hetero = data.to_hetero_data()
    assert hetero["m", "B", "t"].edge_index.max() < 20
    assert_same(data, from_hetero_data(hetero, "t"))
    del hetero["t"].val_mask
    with pytest.raises(ValueError, match="expected 'val_mask'"):
        from_hetero_data(hetero, "t")
    with pytest.raises(ValueError, match="expected 'y'"):
        from_hetero_data(hetero, "no such type")


@pytest.mark.parametrize(
    ("key", "change", "message"),
    [
        ("y", lambda y: y[:, None], r"a class for each 't', got torch.int64 \(8, 1\)"),
        ("y", lambda y: y + 0.5, "a class for each 't', got torch.float32"),
        ("val_mask", lambda mask: mask[:, None].repeat(1, 3), r"a val mask of 8 .* \(8, 3\)"),
        ("test_mask", lambda mask: mask.nonzero().squeeze(1), "a test mask of 8 booleans"),
    ],
)
def test_labels_and_masks_of_another_form_are_refused(key, change, message):
    pytest.importorskip("torch_geometric")
    hetero = planted(num_nodes=8).to_hetero_data()
    hetero["t"][key] = change(hetero["t"][key])
    with pytest.raises(ValueError, match=message):
        from_hetero_data(hetero, "t")


def test_weights_of_hetero_data_are_not_dropped_silently():
    pytest.importorskip("torch_geometric")
    data = planted(num_nodes=8)
    hetero = data.to_hetero_data()
    hetero["m", "B", "t"].edge_weight = torch.ones(16)  # say nothing: there is nothing to lose
    assert_same(data, from_hetero_data(hetero, "t"))
    hetero["m", "B", "t"].edge_weight[3] = 0.5
    with pytest.raises(ValueError, match=r"\('m', 'B', 't'\) has an edge_weight, .* 0/1"):
        from_hetero_data(hetero, "t")


def test_ids_of_hetero_data_are_integers():
    pytest.importorskip("torch_geometric")
    hetero = planted(num_nodes=8).to_hetero_data()
    edges = hetero["m", "B", "t"].edge_index
    hetero["m", "B", "t"].edge_index = edges.int()
    assert from_hetero_data(hetero, "t").relations["B"].edges.dtype == torch.int64
    hetero["m", "B", "t"].edge_index = edges + 0.5
    with pytest.raises(TypeError, match="relation 'B': node: expected integers"):
        from_hetero_data(hetero, "t")


class DglLike:
    """The part of DGL's interface that is used: DGL itself does not import beside this torch."""

    def __init__(self, hetero):
        self.hetero = hetero
        self.ntypes, self.canonical_etypes = hetero.metadata()
        names = {"x": "feat", "y": "label"}
        self.nodes = {
            kind: SimpleNamespace(data={names.get(k, k): v for k, v in hetero[kind].items()})
            for kind in self.ntypes
        }

    def num_nodes(self, kind):
        return self.hetero[kind].num_nodes

    def edges(self, etype):
        return tuple(self.hetero[etype].edge_index)


def test_from_dgl():
    pytest.importorskip("torch_geometric")
    data = planted(num_nodes=20)
    graph = DglLike(data.to_hetero_data())
    assert_same(data, from_dgl(graph, "t"))
    with pytest.raises(ValueError, match="expected 'class'"):
        from_dgl(graph, "t", label="class")


def test_relations_of_the_same_name_keep_their_types():
    pytest.importorskip("torch_geometric")
    hetero = planted(num_nodes=8).to_hetero_data()
    hetero["s", "B", "t"].edge_index = torch.tensor([[0], [1]])
    data = from_hetero_data(hetero, "t")
    assert list(data.relations) == ["A", "C", "m__B__t", "D", "s__B__t"]
