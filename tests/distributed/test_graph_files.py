import numpy as np
import pytest
import torch

from tensus_tn import RelationGraph
from tensus_tn.distributed import DistributedGraph, partition
from tests.distributed import tasks


@pytest.mark.parametrize("mmap", [True, False])
def test_parts_come_back_as_they_were(crew, tmp_path, mmap):
    assert all(crew.run(2, tasks.round_trip, tmp_path, mmap))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "part-0-of-2.npz",
        "part-1-of-2.npz",
        "partition.npz",
    ]
    for good, error in crew.outcomes(3, tasks.load, tmp_path):
        assert not good
        assert "holds a graph in 2 parts, there are 3 processes" in error


def test_parts_of_two_graphs_do_not_mix(crew, tmp_path):
    for good, error in crew.outcomes(2, tasks.other_graph, tmp_path):
        assert not good
        assert error.startswith(
            "DisagreementError: the processes have different edges of all parts"
        )


def save(folder, seed=3):
    index, _ = tasks.edges(seed)
    whole = RelationGraph.from_edge_index(index, 40)
    graph = DistributedGraph.from_graph(whole, partition(whole, 1))
    graph.save(folder)
    return graph


def test_parts_of_two_partitions_do_not_mix(tmp_path):
    save(tmp_path)
    other = RelationGraph.from_edge_index({}, {"a": 20, "b": 20})
    DistributedGraph.from_graph(other, partition(other, 1)).save(tmp_path / "other")
    (tmp_path / "other" / "partition.npz").rename(tmp_path / "partition.npz")
    with pytest.raises(ValueError, match="belongs to another partition"):
        DistributedGraph.load(tmp_path)


def test_a_halo_of_another_number_of_rows_is_refused(tmp_path):
    save(tmp_path)
    path = tmp_path / "part-0-of-1.npz"
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **{**arrays, "forward.halo.ids": np.array([3])})
    with pytest.raises(ValueError, match="its halo has 1 rows, not 0"):
        DistributedGraph.load(tmp_path, mmap=False)


def test_a_damaged_file_is_refused(tmp_path):
    save(tmp_path)
    path = tmp_path / "part-0-of-1.npz"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match="is not a part of a graph"):
        DistributedGraph.load(tmp_path)


@pytest.mark.parametrize("what", ["col", "edge_val", "send"])
def test_verify_notices_a_change(tmp_path, what):
    index, weight = tasks.edges(3, valued=True)
    whole = RelationGraph.from_edge_index(index, 40, edge_weight=weight)
    graph = DistributedGraph.from_graph(whole, partition(whole, 1))
    graph.verify()
    if what == "send":
        graph.forward.halo.send = torch.tensor([1])
        message = "sends other rows"
    else:
        array = getattr(graph.forward.interior.segments, what)
        array[3] = (array[3] + 1) % 40
        message = "directions of the graph differ"
    with pytest.raises(ValueError, match=message):
        graph.verify()
