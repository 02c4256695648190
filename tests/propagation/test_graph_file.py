"""Files of graphs: round trips, and files that are refused."""

import numpy as np
import pytest
import scipy.sparse as sp
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
        arrays[key] = change(arrays.get(key))
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
        ({"relation_names": lambda a: np.arange(len(a))}, "expected a list of names, got int64"),
        ({"relation_names": np.atleast_2d}, "expected a list of names"),
        ({"relation_names": lambda a: np.array([a[0]] * len(a))}, "two relations are named"),
        ({"type_names": lambda a: np.array([a[0]] * len(a))}, "a count for each of"),
        ({"type_counts": lambda a: a + 2**36}, "nodes would take .* bytes, above the limit"),
        ({"value": lambda a: a + np.inf}, "edge values are not finite"),
        ({"loop": lambda a: a + np.nan}, "self-loops are not finite"),
        ({"seg_loop": lambda a: a + np.inf}, "self-loops are not finite"),
        ({"seg_loop": lambda a: a + 1}, "have self-loops, but empty ones have none"),
        ({"added": lambda a: np.ones(4, bool)}, "called self-loops, but join two nodes"),
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
    with pytest.raises(ValueError, match=r"RelationGraph\.save wrote: it is no zip archive"):
        RelationGraph.load(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="it is no zip archive"):
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


@pytest.mark.parametrize("name", ["identity", "zero"])
def test_special_relations_are_what_they_are_called(tmp_path, name):
    """Layers rely on it: an identity that doubles, or a zero that does not vanish, is refused."""
    path = tmp_path / "graph.npz"
    plain = RelationGraph.from_edge_index(edge_lists(), COUNTS)
    special = RelationGraph.from_edge_index(edge_lists(), COUNTS, **{name: True})
    for graph, wrong in [
        (special, {"loop": lambda a: np.append(a[:-1], 1 - a[-1])}),
        (special, {"loop": lambda a: np.append(a[:-1], 0.5)}),
        (plain, {"relation_names": lambda a: np.append(name, a[1:])}),
    ]:
        graph.save(path)
        assert_same(RelationGraph.load(path), graph)
        tampered(path, **wrong)
        with pytest.raises(ValueError, match=f"the name '{name}' is reserved"):
            RelationGraph.load(path)


def test_an_identity_may_have_edges(tmp_path):
    graph = RelationGraph.from_scipy({"identity": sp.eye_array(3, format="csr")})
    graph.save(tmp_path / "graph.npz")
    assert_same(RelationGraph.load(tmp_path / "graph.npz"), graph)
    tampered(tmp_path / "graph.npz", value=lambda a: a * 2)
    with pytest.raises(ValueError, match="'identity' is reserved"):
        RelationGraph.load(tmp_path / "graph.npz")


def test_a_small_file_of_a_large_graph_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "graph.npz"
    RelationGraph.from_edge_index(edge_lists(), COUNTS).save(path)
    with np.load(path) as file:
        arrays = {key: file[key] for key in file.files}
    large = dict.fromkeys(("row", "rel", "col"), np.zeros(3 * 2**23, np.int32))
    np.savez_compressed(path, **{**arrays, **large})
    assert path.stat().st_size < 2**20
    with pytest.raises(
        ValueError, match=r"would take 301,.* bytes, above the limit of 268,435,456"
    ):
        RelationGraph.load(path)
    with pytest.raises(ValueError, match="the lengths of its arrays disagree"):
        RelationGraph.load(path, max_bytes=2**40)
    graph = RelationGraph.from_edge_index(edge_lists(), COUNTS)
    graph.save(path)
    with pytest.raises(ValueError, match=r"above the limit of 100: .* raise max_bytes"):
        RelationGraph.load(path, max_bytes=100)
