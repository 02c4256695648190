"""RelationGraph: its properties, copies, dtypes, and values that learn."""

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from tensus_tn.propagation.functional import propagate
from tensus_tn.propagation.relation_graph import RelationGraph
from tests.propagation.graphs import COUNTS, assert_same, assert_well_formed, dense, edge_lists


def test_round_trip_through_scipy_keeps_every_matrix():
    options = {"normalize": "row", "self_loops": True, "identity": True, "zero": True}
    graph = RelationGraph.from_edge_index(edge_lists(), COUNTS, **options)
    again = RelationGraph.from_scipy(graph.to_scipy())
    for name, matrix in dense(graph).items():
        np.testing.assert_array_equal(dense(again)[name], matrix)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g))])
def test_copies_are_equal(duplicate):
    graph = RelationGraph.from_edge_index(edge_lists(), COUNTS, normalize="row", self_loops=True)
    assert_same(duplicate(graph), graph)


def test_dtype_defaults_to_that_of_torch_and_can_change():
    graph = RelationGraph.from_edge_index({"a": torch.tensor([[0, 1, 2], [0, 0, 1]])}, 3)
    assert graph.dtype == torch.get_default_dtype()
    double = RelationGraph.from_scipy(
        {"a": sp.csr_array(np.array([[0.1, 0.7], [0, 0]]))}, dtype=torch.float64
    )
    assert double.values().tolist() == [0.1, 0.7]
    assert double.to(torch.float32).forward.edge_val.dtype == torch.float32
    assert double.to("cpu", torch.float32).dtype == torch.float32
    assert double.to(torch.float32).forward.col.dtype == torch.int32
    assert graph.to("meta").device.type == "meta"
    assert graph.to("meta").backward.edge_perm.device.type == "meta"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="pinned memory needs a GPU")
def test_pin_memory():
    graph = RelationGraph.from_edge_index(edge_lists(), COUNTS).pin_memory()
    assert graph.forward.col.is_pinned()
    assert graph.backward.edge_perm.is_pinned()
    assert graph.loop.is_pinned()


def test_with_values_keeps_the_gradient_and_reaches_the_transpose():
    graph = RelationGraph.from_edge_index(
        edge_lists(), COUNTS, normalize="row", self_loops=True, dtype=torch.float64
    )
    values = torch.arange(1.0, 5.0, dtype=torch.float32, requires_grad=True)
    learned = graph.with_values(values)
    assert learned.forward.edge_val is values
    assert learned.values() is values
    assert not learned.backward.edge_val.requires_grad
    assert learned.dtype == learned.forward.seg_loop.dtype == torch.float32
    assert_well_formed(learned.to("cpu"))
    assert torch.equal(learned.forward.col, graph.forward.col)
    crossing = RelationGraph.from_edge_index({"a": torch.tensor([[1, 0], [0, 1]])}, 2)
    assert_well_formed(crossing.with_values(torch.tensor([2.0, 3.0])))
    loops = dense(graph.with_values(torch.zeros(4, dtype=torch.float64)))
    assert loops["author__writes__paper"][4, 4] == 0.25
    with pytest.raises(ValueError, match=r"4 edges, got shape \(3,\)"):
        graph.with_values(values[:3])
    with pytest.raises(TypeError, match=r"float32 or float64, got torch\.int64"):
        graph.with_values(values.detach().long())
    with pytest.raises(ValueError, match="values are on meta, the graph is on cpu"):
        graph.with_values(values.detach().to("meta"))


def test_degenerate_graphs():
    nothing = RelationGraph.from_edge_index({}, 0)
    assert (nothing.num_nodes, nothing.num_relations, nothing.num_edges) == (0, 0, 0)
    no_edges = torch.empty(2, 0, dtype=torch.int64)
    options = {"normalize": "sym", "self_loops": True, "identity": True, "zero": True}
    empty = RelationGraph.from_edge_index({"a": no_edges}, 0, **options)
    assert {m.shape for m in empty.to_scipy().values()} == {(0, 0)}
    one = RelationGraph.from_edge_index({"a": torch.zeros(2, 5, dtype=torch.int64)}, 1)
    assert dense(one)["a"].tolist() == [[5.0]]
    isolated = RelationGraph.from_edge_index({"a": no_edges}, 4, **options)
    assert dense(isolated)["a"].tolist() == np.eye(4).tolist()
    many = {f"r{i}": torch.tensor([[i], [59 - i]]) for i in range(60)}
    sixty = RelationGraph.from_edge_index(many, 60)
    assert all(dense(sixty)[f"r{i}"][59 - i, i] == 1 for i in range(60))
    star = torch.stack([torch.arange(9), torch.full((9,), 3)])
    hub = RelationGraph.from_edge_index({"a": star}, 9)
    assert hub.num_segments == 1
    assert_well_formed(hub)
    for graph in (nothing, empty, one, isolated):
        assert repr(graph).startswith(f"RelationGraph({graph.num_nodes} nodes, ")


def test_repr_counts():
    graph = RelationGraph.from_edge_index(edge_lists(), COUNTS, self_loops=True, zero=True)
    assert repr(graph) == (
        "RelationGraph(9 nodes, 4 edges, 4 relations: author__writes__paper 3 + loops, "
        "paper__cites__paper 1 + loops, paper__in__venue 0 + loops, zero)"
    )


def test_graphs_are_immutable_and_hashable_by_identity():
    graph = RelationGraph.from_edge_index(edge_lists(), COUNTS)
    with pytest.raises(AttributeError):
        graph.loop = None
    with pytest.raises(AttributeError):
        graph.forward.col = None
    assert len({graph, graph, RelationGraph.from_edge_index(edge_lists(), COUNTS)}) == 2


def test_relation_index():
    graph = RelationGraph.from_edge_index(edge_lists(), COUNTS, identity=True)
    assert graph.relation_index(("paper", "cites", "paper")) == 1
    assert graph.relation_index("paper__cites__paper") == 1
    assert graph.relation_index("identity") == 3
    with pytest.raises(ValueError, match="no relation 'cites' among"):
        graph.relation_index("cites")


def test_a_graph_built_for_inference_can_be_trained_on(tmp_path):
    options = {"normalize": "sym", "self_loops": True}
    with torch.inference_mode():
        built = RelationGraph.from_edge_index(edge_lists(), COUNTS, **options)
        built.save(tmp_path / "graph.npz")
        loaded = RelationGraph.load(tmp_path / "graph.npz")
    for graph in (built, loaded):
        w = torch.ones(graph.num_relations, 1, 1, requires_grad=True)
        propagate(graph, torch.ones(9, 1, 2), w).sum().backward()
        assert w.grad.isfinite().all()
