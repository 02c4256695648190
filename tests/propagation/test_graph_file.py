"""Files of graphs: round trips, and files that are refused."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from tensus_tn import propagate
from tensus_tn._files import write_arrays
from tensus_tn.propagation.relation_graph import RelationGraph
from tests.propagation.graphs import COUNTS, assert_same, edge_lists

OPTIONS = [
    {},
    {"normalize": "row", "identity": True},
    {"normalize": "row", "self_loops": True},
    {"normalize": "sym", "self_loops": True, "zero": True},
]
WAYS = [{}, {"mmap": True}, {"mmap": True, "verify": True}]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("options", OPTIONS)
def test_save_and_load(tmp_path, options, dtype, way):
    graph = RelationGraph.from_edge_index(edge_lists(), COUNTS, dtype=dtype, **options)
    graph.save(tmp_path / "graph.npz")
    loaded = RelationGraph.load(str(tmp_path / "graph.npz"), **way)
    assert_same(loaded, graph)
    assert [p.name for p in tmp_path.iterdir()] == ["graph.npz"]
    loaded.save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "graph.npz").read_bytes()


@pytest.mark.parametrize("way", WAYS)
def test_graphs_without_nodes_edges_or_relations(tmp_path, way):
    none = torch.empty(2, 0, dtype=torch.int64)
    typed = {("a", "to", "b"): none}, {"a": 0, "b": 2}
    for edges, nodes in ({}, 0), ({}, 3), ({"A": none}, 3), typed:
        graph = RelationGraph.from_edge_index(edges, nodes)
        graph.save(tmp_path / "graph.npz")
        assert_same(RelationGraph.load(tmp_path / "graph.npz", **way), graph)


def test_a_mapped_graph_propagates_to_the_same_bits(tmp_path):
    """With features on disk too, forward and backward; and the file is not changed by it."""
    edges = {"A": torch.randint(50, (2, 300)), "B": torch.randint(50, (2, 200))}
    graph = RelationGraph.from_edge_index(edges, 50, normalize="row", self_loops=True)
    graph.save(tmp_path / "graph.npz")
    mapped = RelationGraph.load(tmp_path / "graph.npz", mmap=True)
    features = np.random.default_rng(0).standard_normal((50, 2, 8), dtype=np.float32)
    np.save(tmp_path / "features.npy", features)
    on_disk = torch.from_numpy(np.load(tmp_path / "features.npy", mmap_mode="c"))
    results = []
    for g, h in (graph, torch.from_numpy(features)), (mapped, on_disk):
        w = torch.linspace(-1, 1, 8).reshape(2, 2, 2).requires_grad_()
        y = propagate(g, h.requires_grad_(), w)
        y.square().sum().backward()
        results.append((y, h.grad, w.grad))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    assert_same(RelationGraph.load(tmp_path / "graph.npz"), graph)


def test_a_map_is_private_and_survives_another_save(tmp_path):
    path = tmp_path / "graph.npz"
    graph = RelationGraph.from_edge_index(edge_lists(), COUNTS)
    graph.save(path)
    mapped = RelationGraph.load(path, mmap=True)
    RelationGraph.from_edge_index({}, 3).save(path)
    assert_same(mapped, graph)
    graph.save(path)
    before = path.read_bytes()
    RelationGraph.load(path, mmap=True).forward.col[0] = 1
    assert path.read_bytes() == before


def tampered(path, **changes):
    """Change some arrays of a file: the values of edges are given as such, if they are not there."""
    with np.load(path) as file:
        arrays = {key: file[key] for key in file.files}
    for key, change in changes.items():
        ones = np.ones(len(arrays["forward.col"]), arrays["loop"].dtype)
        arrays[key] = change(arrays.get(key, ones))
    write_arrays(path, arrays)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"forward.col": lambda a: a[1:]}, "lengths"),
        ({"forward.row_ptr": lambda a: a[1:]}, "lengths"),
        ({"forward.seg_ptr": lambda a: a[1:]}, "lengths"),
        (dict.fromkeys(("backward.col", "backward.edge_perm"), lambda a: a[1:]), "lengths"),
        ({"backward.edge_perm": lambda a: a[1:]}, "lengths"),
        ({"forward.col": np.atleast_2d}, "lengths"),
        ({"forward.row_ptr": lambda a: a[0]}, "lengths|0-d"),
        ({"loop": lambda a: a[1:]}, "lengths"),
        ({"loop": lambda a: a[0]}, "lengths"),
        ({"forward.edge_val": lambda a: a[1:]}, "lengths"),
        ({"forward.seg_val": lambda a: np.ones(3, np.float32)}, "two values"),
        ({"forward.edge_val": lambda a: a.astype(np.float64)}, "is torch.float64, expected"),
        ({"forward.seg_rel": lambda a: a.astype(np.int64)}, "is torch.int64, expected torch.int32"),
        ({"forward.col": lambda a: a.astype(np.int16)}, "int32, expected|int16"),
        ({"loop": lambda a: a.astype(np.float16)}, "float32 or float64"),
        ({"format": lambda a: np.array("other/1")}, "expected tensus_tn.RelationGraph/2"),
        ({"type_counts": lambda a: a[1:]}, "a count for each of .*, got"),
        ({"type_counts": lambda a: a[0]}, "a count for each of .*, got 3"),
        ({"type_counts": lambda a: -a}, "must not be negative, got -3"),
        ({"type_counts": lambda a: a + 0.5}, "must be an int, got 3.5"),
        ({"type_counts": lambda a: a + 2**36}, "lengths"),
        ({"type_counts": np.atleast_2d}, "a count for each of"),
        ({"relation_names": lambda a: np.arange(len(a))}, "expected a list of names, got int64"),
        ({"relation_names": np.atleast_2d}, "expected a list of names"),
        ({"relation_names": lambda a: np.array([a[0]] * len(a))}, "two relations are named"),
        ({"type_names": lambda a: np.array([a[0]] * len(a))}, "a count for each of"),
    ],
)
@pytest.mark.parametrize("way", WAYS)
def test_lengths_types_and_names_are_always_checked(tmp_path, changes, message, way):
    path = tmp_path / "graph.npz"
    RelationGraph.from_edge_index(edge_lists(), COUNTS).save(path)
    tampered(path, **changes)
    with pytest.raises(ValueError, match=message):
        RelationGraph.load(path, **way)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"forward.col": lambda a: a + 100}, "node 1\\d\\d is out of range"),
        ({"forward.col": lambda a: a[[0, 2, 1, 3]]}, "not in order"),
        ({"forward.seg_rel": lambda a: a - 1}, "relation -1 is out of range"),
        ({"forward.row_ptr": lambda a: a[::-1].copy()}, "row_ptr does not rise"),
        ({"forward.seg_ptr": np.zeros_like}, "seg_ptr does not rise"),
        ({"backward.seg_ptr": lambda a: a * 2}, "seg_ptr does not rise"),
        ({"backward.edge_perm": lambda a: a[::-1].copy()}, "the transpose has other edges"),
        ({"backward.edge_perm": lambda a: a - 1}, "edge_perm -1 is out of range"),
        ({"backward.edge_val": lambda a: a * 2}, "transpose has other values"),
        ({"forward.edge_val": lambda a: a * 2}, "transpose has other values"),
        ({"forward.edge_val": lambda a: a * np.float32(np.nan)}, "not finite"),
        ({"loop": lambda a: a + np.float32(np.nan)}, "self-loops are not finite"),
        ({"forward.seg_loop": lambda a: np.ones(3, np.float32)}, "but empty ones have none"),
        ({"forward.edge_added": lambda a: np.ones(4, bool)}, "called self-loops, but join two"),
    ],
)
@pytest.mark.parametrize("way", [WAYS[0], WAYS[2]])
def test_every_entry_is_verified(tmp_path, changes, message, way):
    path = tmp_path / "graph.npz"
    RelationGraph.from_edge_index(edge_lists(), COUNTS).save(path)
    tampered(path, **changes)
    with pytest.raises(ValueError, match=message):
        RelationGraph.load(path, **way)


def test_damage_is_found_by_checksums(tmp_path):
    """A flipped bit of a value is as good a value: only its checksum tells."""
    path = tmp_path / "graph.npz"
    graph = RelationGraph.from_edge_index(edge_lists(), COUNTS, normalize="row")
    graph.save(path)
    content = bytearray(path.read_bytes())
    third = content.index(np.float32(1 / 3).tobytes())
    content[third] ^= 1
    path.write_bytes(content)
    assert not torch.equal(RelationGraph.load(path, mmap=True).values(), graph.values())
    for way in WAYS[0], WAYS[2]:
        with pytest.raises(ValueError, match=r"damaged|Bad CRC"):
            RelationGraph.load(path, **way)


def test_wrong_indices_of_an_unverified_map_are_refused_when_they_are_used(tmp_path):
    path = tmp_path / "graph.npz"
    RelationGraph.from_edge_index(edge_lists(), COUNTS).save(path)
    tampered(path, **{"forward.col": lambda a: a + 100})
    mapped = RelationGraph.load(path, mmap=True)
    with pytest.raises((RuntimeError, IndexError)):
        propagate(mapped, torch.ones(9, 1, 1), torch.ones(3, 1, 1))


def test_what_can_not_be_mapped_is_refused(tmp_path):
    path = tmp_path / "graph.npz"
    RelationGraph.from_edge_index(edge_lists(), COUNTS).save(path)
    with np.load(path) as file:
        arrays = dict(file)
    np.savez_compressed(path, **arrays)
    assert RelationGraph.load(path).num_edges == 4
    with pytest.raises(ValueError, match="is compressed, so it can't be mapped"):
        RelationGraph.load(path, mmap=True)
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match="is not laid out to be mapped"):
        RelationGraph.load(path, mmap=True)


@pytest.mark.parametrize("way", WAYS)
def test_load_refuses_other_and_truncated_files(tmp_path, way):
    path = tmp_path / "graph.npz"
    np.savez(path, a=np.ones(3))
    with pytest.raises(ValueError, match=r"RelationGraph\.save|format"):
        RelationGraph.load(path, **way)
    RelationGraph.from_edge_index(edge_lists(), COUNTS).save(path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"RelationGraph\.save wrote: .* zip"):
        RelationGraph.load(path, **way)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="zip"):
        RelationGraph.load(path, **way)
    with pytest.raises(FileNotFoundError):
        RelationGraph.load(tmp_path / "absent.npz", **way)


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
        (special, {"loop": lambda a: np.append(a[:-1], np.float32(0.5))}),
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
    twice = {f"{way}.edge_val": lambda a: a * 2 for way in ("forward", "backward")}
    tampered(tmp_path / "graph.npz", **twice)
    with pytest.raises(ValueError, match="'identity' is reserved"):
        RelationGraph.load(tmp_path / "graph.npz")


def test_a_small_file_of_a_large_graph_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "graph.npz"
    RelationGraph.from_edge_index(edge_lists(), COUNTS).save(path)
    with np.load(path) as file:
        arrays = {key: file[key] for key in file.files}
    large = {"forward.col": np.zeros(9 * 2**23, np.int32)}
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
