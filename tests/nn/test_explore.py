"""Views of what a layer has learned: the best meta-graphs, their probabilities and instances."""

import math

import pytest
import torch

from tensus_tn import Dag, RelationGraph
from tensus_tn.nn import MetaGraph, MetaGraphConv
from tensus_tn.nn.explore import instance_lines
from tests.nn.meta_graphs import TYPES, make_conv, typed_graph


def test_a_view_lists_the_best_meta_graphs():
    conv = MetaGraphConv(4, 8, TYPES, dag=Dag.complete(2), rank=2, init_scale=1.0)
    (view,) = conv.views(5, name="a layer")
    assert view.name == "a layer"
    for entry, meta_graph in zip(view.best, conv.meta_graphs(5), strict=True):
        assert entry.text == str(meta_graph)
        assert math.exp(entry.log_probability) == pytest.approx(meta_graph.probability, rel=1e-5)
        names = [conv.schema.relations[choice] for choice in entry.choices]
        assert names == list(meta_graph.relations.values())
        assert tuple(view.tensor.dag.edges[link] for link in entry.links) == meta_graph.links


def test_every_head_has_its_view():
    conv = make_conv(heads=2)
    assert [view.name for view in conv.views(1, name="run")] == ["run head 0", "run head 1"]


def test_instances_are_named_where_names_are_known():
    edges = {("a", "to", "b"): torch.tensor([[1], [0]]), ("b", "to", "a"): torch.tensor([[0], [2]])}
    graph = RelationGraph.from_edge_index(edges, {"a": 3, "b": 1})
    path = MetaGraph(Dag.path(2), {(0, 1): "a__to__b", (1, 2): "b__to__a"})
    assert instance_lines(path, graph, {"a": ["x", "y", "z"]}) == ["y, b 0, z"]


def test_a_page_is_written_with_instances(tmp_path):
    conv = MetaGraphConv(4, 8, TYPES, dag=Dag.path(1), rank=1)
    conv.explore(tmp_path / "a.html", k=3, graph=typed_graph())
    assert "node " in (tmp_path / "a.html").read_text()


def test_a_derived_layer_has_no_distribution_to_explore(tmp_path):
    with pytest.raises(ValueError, match="no distribution"):
        make_conv().derive().explore(tmp_path / "a.html")
    assert not (tmp_path / "a.html").exists()
