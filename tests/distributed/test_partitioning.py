import sys

import pytest
import torch

from tensus_tn import RelationGraph
from tensus_tn.distributed import Partition, partition


def communities(seed=0):
    """Four cliques of ten nodes, shuffled, and a ring of edges between them."""
    order = torch.randperm(40, generator=torch.Generator().manual_seed(seed))
    i, j = torch.cartesian_prod(torch.arange(10), torch.arange(10)).T
    inside = [torch.stack([order[10 * c + i], order[10 * c + j]]) for c in range(4)]
    ring = torch.stack([order[torch.arange(0, 40, 10)], order[(torch.arange(0, 40, 10) + 11) % 40]])
    return {"A": torch.cat(inside, 1), "B": ring}, order


def test_metis_finds_communities():
    pytest.importorskip("pymetis")
    index, order = communities()
    part = partition(index, 4, num_nodes=40)
    groups = part.owner[order].reshape(4, 10)
    assert (groups == groups[:, :1]).all()
    assert groups[:, 0].unique().numel() == 4
    graph = RelationGraph.from_edge_index(index, 40)
    assert torch.equal(partition(graph, 4).owner, part.owner)


@pytest.mark.parametrize("method", ["range", "random", "metis"])
@pytest.mark.parametrize("parts", [1, 3, 7])
def test_every_node_has_an_owner(method, parts):
    if method == "metis":
        pytest.importorskip("pymetis")
    index, _ = communities()
    part = partition(index, parts, num_nodes=40, method=method)
    assert torch.cat([part.own(p) for p in range(parts)]).sort().values.tolist() == list(range(40))
    sizes = [len(part.own(p)) for p in range(parts)]
    assert method == "random" or max(sizes) <= 2 * 40 / parts
    assert part.digest == partition(index, parts, num_nodes=40, method=method).digest


def test_edges_are_balanced():
    star = torch.stack([torch.arange(100), torch.zeros(100, dtype=torch.int64)])
    part = partition({"A": star}, 2, num_nodes=100, method="range")
    assert len(part.own(0)) < len(part.own(1))
    part = partition({"A": star}, 2, num_nodes=100, method="range", balance="nodes")
    assert len(part.own(0)) == len(part.own(1)) == 50


def test_types():
    index = {("a", "to", "b"): torch.tensor([[0, 1, 2], [1, 1, 0]])}
    part = Partition(torch.tensor([0, 1, 0, 1, 0]), 2, {"a": 3, "b": 2})
    assert part.counts(0) == {"a": 2, "b": 1}
    assert part.rows(index, 0)[("a", "to", "b")].tolist() == [[0, 1], [1, 1]]
    assert partition(index, 2, num_nodes={"a": 3, "b": 2}, method="range").node_counts == {
        "a": 3,
        "b": 2,
    }


def test_no_nodes():
    assert repr(partition({}, 2, num_nodes=0)) == "Partition(0 nodes in 2 parts of 0, 0)"


def test_digests_tell_partitions_apart():
    owner = torch.tensor([0, 1, 0])
    digests = {
        Partition(owner, 2, {"node": 3}).digest,
        Partition(owner, 3, {"node": 3}).digest,
        Partition(1 - owner, 2, {"node": 3}).digest,
        Partition(owner, 2, {"a": 1, "b": 2}).digest,
    }
    assert len(digests) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.zeros(2, dtype=torch.int64), 0, {"node": 2}), "at least 1"),
        ((torch.zeros(3, dtype=torch.int64), 1, {"node": 2}), r"one part for each node"),
        ((torch.zeros(2), 1, {"node": 2}), "must be int64"),
        ((torch.tensor([0, 2]), 2, {"node": 2}), "parts 0 .. 1"),
    ],
)
def test_bad_partitions_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Partition(*arguments)


def test_bad_arguments_are_refused():
    index, _ = communities()
    for options, message in (
        ({"num_nodes": 40, "method": "magic"}, "method must be"),
        ({"num_nodes": 40, "balance": "hope"}, "balance must be"),
        ({}, "num_nodes is needed"),
        ({"num_nodes": 5}, "beyond the 5 nodes"),
    ):
        with pytest.raises(ValueError, match=message):
            partition(index, 2, **options)


def test_without_pymetis_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    index, _ = communities()
    with pytest.raises(ImportError, match=r"tensus_tn\[distributed\]"):
        partition(index, 2, num_nodes=40)


def test_what_was_saved_under_another_partition_is_refused():
    part = Partition(torch.tensor([0, 1, 1]), 2, {"node": 3})
    part.require(Partition(torch.tensor([0, 1, 1]), 2, {"node": 3}).digest)
    for owner, parts, counts in (
        ([0, 1, 0], 2, {"node": 3}),
        ([0, 1, 1], 3, {"node": 3}),
        ([0, 1, 1], 2, {"a": 1, "b": 2}),
    ):
        other = Partition(torch.tensor(owner), parts, counts)
        with pytest.raises(ValueError, match="saved under another partition"):
            part.require(other.digest)
