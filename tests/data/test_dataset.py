from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from tensus_tn import RelationGraph
from tensus_tn.data import (
    Dataset,
    NodeLabels,
    NodePairs,
    Relation,
    planted,
)

SPLITS = {split: torch.tensor([k]) for k, split in enumerate(("train", "val", "test"))}
LABELS = NodeLabels("a", torch.tensor([0, 1, 1, -1]), SPLITS, num_classes=2)
EDGES = torch.tensor([[0, 1, 2, 0], [3, 3, 3, 3]])  # a sends to b; the last repeats the first


def dataset(**changes):
    settings = {
        "name": "small",
        "node_counts": {"a": 3, "b": 1},
        "relations": {"AB": Relation("a", "b", EDGES), "BA": Relation("b", "a", EDGES.flip(0))},
        "target": LABELS,
        "features": {"a": torch.eye(3)},
    }
    return Dataset(**{**settings, **changes})


def dense(data, normalisation):
    return {key: m.toarray() for key, m in data.graph(normalisation).to_scipy().items()}


def test_graph_has_diffmgs_normalisation():
    friends = Relation("a", "a", torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
    data = dataset(
        relations={"AA": friends, "AB": Relation("a", "b", EDGES)}, symmetric=frozenset({"AA"})
    )
    graph = dense(data, "diffmg")
    assert list(graph) == ["AA", "AB", "identity", "zero"]
    a = np.zeros((4, 4))
    a[friends.edges[1], friends.edges[0]] = 1
    scale = sp.diags_array((a + np.eye(4)).sum(1) ** -0.5).toarray()
    assert np.allclose(graph["AA"], scale @ (a + np.eye(4)) @ scale)
    assert np.allclose(graph["AB"], np.vstack([np.eye(4)[:3], np.full(4, 0.25)]))
    assert (graph["identity"] == np.eye(4)).all()
    assert (graph["zero"] == 0).all()


def test_graph_without_self_loops_and_without_normalisation():
    assert np.allclose(dense(dataset(), "row")["AB"][3], [1 / 3, 1 / 3, 1 / 3, 0])
    assert (dense(dataset(), "none")["AB"][3] == [1, 1, 1, 0]).all()
    with pytest.raises(ValueError, match="normalisation must be one of"):
        dataset().graph("rows")


@pytest.mark.parametrize("mode", ["row", "sym"])
def test_weights_whose_sum_overflows_are_not_normalised_to_zero(mode):
    def values(weight, normalize):
        graph = RelationGraph.from_edge_index(
            {"R": torch.tensor([[0, 1], [0, 0]])}, 2, normalize=normalize, dtype=torch.float64,
            edge_weight={"R": torch.full((2,), weight, dtype=torch.float64)},
        )  # fmt: skip
        return graph.to_scipy()["R"].data

    with pytest.raises(ValueError, match=r"'R': the sum of its values overflows, up to 1e\+308"):
        values(1e308, mode)
    assert np.allclose(values(8e307, "row"), 0.5)
    assert (values(1e308, None) == 1e308).all()


def test_types_without_features_are_told_apart_by_their_ids():
    x = dataset(features={}).inputs()
    assert list(x) == ["a", "b"]
    assert (x["a"].to_dense() == torch.eye(3)).all()
    big = planted(num_nodes=100)
    big = replace(big, features={})
    assert big.inputs()["s"].layout == torch.sparse_coo
    assert (big.inputs()["s"].to_dense() == torch.eye(100)).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"relations": {}}, "no relations"),
        ({"relations": {"AB": Relation("a", "b", EDGES + 2)}}, "node 4 is out of range"),
        ({"relations": {"AB": Relation("a", "b", EDGES[0])}}, r"expected edges \(2, E\)"),
        ({"symmetric": frozenset({"XY"})}, "no relation 'XY'"),
        ({"features": {"a": torch.tensor([[1.0], [float("nan")], [0]])}}, "NaN"),
        ({"features": {"a": torch.eye(3).log().to_sparse()}}, "infinity"),
        ({"features": {"a": torch.eye(2)}}, "expected a row for each of 3"),
        ({"features": {"c": torch.eye(2)}}, "features: 'c' is not among"),
        ({"relations": {"AC": Relation("a", "c", EDGES)}}, "relation 'AC': 'c' is not among"),
        (
            {"relations": {"AB": Relation("a", "b", EDGES.flip(0))}},
            "'AB': sending nodes: expected ids of 'a', 0 to 2, got 3 to 3",
        ),
        ({"relations": {"AA": Relation("a", "a", EDGES)}}, "'AA': receiving nodes: .* got 3 to 3"),
        ({"target": replace(LABELS, kind="c")}, "train node: 'c' is not among"),
        ({"target": replace(LABELS, kind="b")}, "expected ids of 'b', 3 to 3, got 0 to 0"),
        ({"target": replace(LABELS, labels=LABELS.labels[:3])}, "each of 4 nodes"),
    ],
)
def test_bad_data_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataset(**changes)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16])
def test_narrow_ids_do_not_overflow(dtype):
    data = planted(num_nodes=80)  # 240 nodes: edges number up to 240 ** 2
    narrow = {
        name: relation._replace(edges=relation.edges.to(dtype))
        for name, relation in data.relations.items()
    }
    for name, expected in dense(data, "none").items():
        assert (dense(replace(data, relations=narrow), "none")[name] == expected).all()


def test_a_relation_may_be_empty():
    nothing = Relation("a", "b", torch.zeros(2, 0, dtype=torch.long))
    assert (dense(dataset(relations={"AB": nothing}), "none")["AB"] == 0).all()


def test_only_mistyped_data_may_contradict_their_types():
    backwards = {"AB": Relation("a", "b", EDGES.flip(0))}
    data = dataset(relations=backwards, mistyped=True)
    assert (dense(data, "none")["AB"].sum(1) == [1, 1, 1, 0]).all()
    with pytest.raises(ValueError, match="node 4 is out of range"):
        dataset(relations={"AB": Relation("a", "b", EDGES + 2)}, mistyped=True)
    pytest.importorskip("torch_geometric")
    with pytest.raises(ValueError, match="'small' contradict its node types"):
        data.to_hetero_data()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_classes": 1}, "class 1 is out of range"),
        ({"labels": torch.tensor([0, -1, 1, -1])}, "class -1 is out of range"),
        ({"labels": torch.ones(4, 3)}, r"labels \(N,\) or \(N, 2\), got \(4, 3\)"),
        ({"labels": torch.tensor([[0, 1], [-1, -1], [1, 1], [0, 0]])}, "class -1 is out of range"),
        ({"labels": torch.tensor([[0, 2], [0, 1], [1, 1], [0, 0]])}, "0 or 1 for each class"),
        ({"nodes": {**SPLITS, "val": torch.tensor([], dtype=torch.long)}}, "val split is empty"),
        ({"nodes": {**SPLITS, "val": torch.tensor([4])}}, "val node 4 is out of range"),
        ({"nodes": {**SPLITS, "val": torch.tensor([0])}}, "in two splits"),
        ({"nodes": {"train": SPLITS["train"]}}, "expected the splits"),
    ],
)
def test_bad_labels_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(LABELS, **changes)


def test_bad_pairs_are_refused():
    pairs = {split: torch.tensor([[0, 3]]) for split in SPLITS}
    with pytest.raises(ValueError, match="as many positive as negative"):
        NodePairs("a", "b", pairs, {**pairs, "val": torch.tensor([[0, 3], [1, 3]])})
    with pytest.raises(ValueError, match="test split is empty"):
        NodePairs("a", "b", pairs, {**pairs, "test": torch.zeros(0, 2, dtype=torch.long)})
    with pytest.raises(ValueError, match="node 4 is out of range"):
        dataset(target=NodePairs("a", "b", pairs, {**pairs, "val": torch.tensor([[0, 4]])}))
    with pytest.raises(ValueError, match="val pairs: node: expected ids of 'b', 3 to 3, got 1"):
        dataset(target=NodePairs("a", "b", pairs, {**pairs, "val": torch.tensor([[0, 1]])}))
