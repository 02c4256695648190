"""Files of graphs: round trips, and files that are refused."""

import numpy as np
import pytest
import torch

from tensus_tn.propagation.relation_graph import RelationGraph
from tests.propagation.graphs import COUNTS, assert_same, edge_lists


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("options", [{}, {"normalize": "sym", "self_loops": True, "zero": True}])
def test_save_and_load(tmp_path, options, dtype):
    graph = RelationGraph.from_edge_index(edge_lists(), COUNTS, dtype=dtype, **options)
    graph.save(tmp_path / "graph.npz")
    loaded = RelationGraph.load(str(tmp_path / "graph.npz"))
    assert_same(loaded, graph)
    assert [p.name for p in tmp_path.iterdir()] == ["graph.npz"]


def test_a_file_may_list_its_edges_in_any_order(tmp_path):
    path = tmp_path / "graph.npz"
    graph = RelationGraph.from_edge_index(edge_lists(), COUNTS)
    graph.save(path)
    tampered(path, **dict.fromkeys(("row", "rel", "col", "value"), np.flip))
    assert_same(RelationGraph.load(path), graph)
    graph = RelationGraph.from_edge_index(edge_lists(), COUNTS, normalize="sym", self_loops=True)
    graph.save(path)
    tampered(path, **dict.fromkeys(("row", "rel", "col", "value", "added"), np.flip))
    assert_same(RelationGraph.load(path), graph)


def tampered(path, **changes):
    with np.load(path) as file:
        arrays = {key: file[key] for key in file.files}
    for key, change in changes.items():
        arrays[key] = change(arrays[key])
    np.savez(path, **arrays)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"col": lambda a: a + 100}, "sending node 1\\d\\d is out of range"),
        ({"rel": lambda a: a - 1}, "relation -1 is out of range"),
        ({"value": lambda a: a[1:]}, "lengths"),
        ({"loop": lambda a: a[1:]}, "lengths"),
        (dict.fromkeys(("row", "rel", "col"), np.zeros_like), "lengths"),  # duplicates
        ({"seg_loop": lambda a: np.append(a, a)}, "lengths"),
        ({"row": lambda a: a[0]}, "lengths"),
        ({"value": lambda a: a * np.nan}, "not finite"),
        ({"format": lambda a: np.array("other/1")}, "expected tensus_tn.RelationGraph/1"),
        ({"type_counts": lambda a: a[1:]}, "a count for each of .*, got"),
        ({"type_counts": lambda a: a[0]}, "a count for each of .*, got 3"),
        ({"type_counts": lambda a: -a}, "must not be negative, got -3"),
        ({"type_counts": lambda a: a + 0.5}, "must be an int, got 3.5"),
        ({"type_counts": np.atleast_2d}, "a count for each of"),
        ({"relation_names": lambda a: np.array([{}], dtype=object)}, "allow_pickle"),
    ],
)
def test_load_refuses_inconsistent_files(tmp_path, changes, message):
    path = tmp_path / "graph.npz"
    RelationGraph.from_edge_index(edge_lists(), COUNTS).save(path)
    tampered(path, **changes)
    with pytest.raises(ValueError, match=message):
        RelationGraph.load(path)


def test_load_refuses_other_and_truncated_files(tmp_path):
    path = tmp_path / "graph.npz"
    np.savez(path, a=np.ones(3))
    with pytest.raises(ValueError, match=r"RelationGraph\.save"):
        RelationGraph.load(path)
    RelationGraph.from_edge_index(edge_lists(), COUNTS).save(path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"RelationGraph\.save wrote: no zip archive"):
        RelationGraph.load(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="no zip archive"):
        RelationGraph.load(path)
    with pytest.raises(FileNotFoundError):
        RelationGraph.load(tmp_path / "absent.npz")


def test_a_failed_save_leaves_the_old_file(tmp_path):
    path = tmp_path / "graph.npz"
    graph = RelationGraph.from_edge_index(edge_lists(), COUNTS)
    graph.save(path)
    before = path.read_bytes()
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))  # as if the disk were full
    try:
        with pytest.raises(OSError, match="File too large"):
            graph.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError):
        graph.save(tmp_path / "absent" / "graph.npz")
