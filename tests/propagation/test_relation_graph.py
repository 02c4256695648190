"""RelationGraph against plain dense matrices, over every constructor, option and bad input."""

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tensus_tn.propagation.functional import propagate
from tensus_tn.propagation.relation_graph import RelationGraph


def dense_relation(matrix, normalize, self_loops):
    """The definition: normalise A, or A + I, by its row sums or by the roots of both sums."""
    a = matrix + np.eye(len(matrix)) * self_loops
    row, col = a.sum(1), a.sum(0)
    with np.errstate(divide="ignore"):
        if normalize == "row":
            return np.where(row > 0, 1 / row, 0)[:, None] * a
        if normalize == "sym":
            left, right = (np.where(d > 0, d**-0.5, 0) for d in (row, col))
            return left[:, None] * a * right
    return a


def dense(graph):
    return {name: matrix.toarray() for name, matrix in graph.to_scipy().items()}


def transposed_dense(graph):
    """The relations' edges rebuilt from the transposed structure alone, transposed back."""
    b = graph.backward
    seg = b.edge_seg()
    out = np.zeros((graph.num_relations, graph.num_nodes, graph.num_nodes))
    np.add.at(
        out,
        (b.seg_rel[seg].numpy(), b.col.numpy(), b.seg_row()[seg].numpy()),
        b.values(graph.dtype).numpy(),
    )
    return out


def assert_well_formed(graph):
    """Every promise of the layout: sorted, no empty segment, no duplicate, mirrored."""
    edges = np.zeros((graph.num_relations, graph.num_nodes, graph.num_nodes))
    for s in (graph.forward, graph.backward):
        n, num_segments, num_edges = graph.num_nodes, s.num_segments, s.num_edges
        assert s.row_ptr.shape == (n + 1,)
        assert s.seg_ptr.shape == (num_segments + 1,)
        assert s.row_ptr[0] == 0
        assert s.row_ptr[-1] == num_segments
        assert s.seg_ptr[0] == 0
        assert s.seg_ptr[-1] == num_edges
        assert (s.row_ptr.diff() >= 0).all()
        assert (s.seg_ptr.diff() > 0).all()
        assert {s.row_ptr.dtype, s.seg_ptr.dtype, s.col.dtype} == {graph.index_dtype}
        assert s.seg_rel.dtype == torch.int32
        seg = s.edge_seg()
        keys = list(
            zip(s.seg_row()[seg].tolist(), s.seg_rel[seg].tolist(), s.col.tolist(), strict=True)
        )
        assert keys == sorted(set(keys))
        assert s.seg_val is None or s.edge_val is None
        if s is graph.forward:
            for (row, rel, col), value in zip(keys, s.values(graph.dtype).tolist(), strict=True):
                edges[rel, row, col] = value
    assert graph.backward.seg_loop is None
    np.testing.assert_array_equal(transposed_dense(graph), edges)
    perm = graph.backward.edge_perm
    assert torch.equal(graph.values()[perm], graph.backward.values(graph.dtype))


@st.composite
def relations(draw):
    """Up to three relations over up to seven nodes: weighted or not, often with empty rows."""
    n = draw(st.integers(1, 7))
    unit = draw(st.booleans())
    values = st.sampled_from([0.0, 0.0, 1.0] if unit else [0.0, 0.0, 1.0, 0.5, 3.0])
    rows = st.lists(st.lists(values, min_size=n, max_size=n), min_size=n, max_size=n)
    symmetric = draw(st.booleans())
    matrices = [np.array(draw(rows)) for _ in range(draw(st.integers(1, 3)))]
    return {f"r{i}": np.maximum(m, m.T) if symmetric else m for i, m in enumerate(matrices)}


@settings(max_examples=150, deadline=None)
@given(relations(), st.sampled_from([None, "row", "sym"]), st.booleans(), st.booleans())
def test_every_option_equals_the_dense_definition(matrices, normalize, self_loops, special):
    graph = RelationGraph.from_scipy(
        {name: sp.csr_array(m) for name, m in matrices.items()},
        normalize=normalize,
        self_loops=self_loops,
        identity=special,
        zero=special,
        dtype=torch.float64,
    )
    n = graph.num_nodes
    expected = {k: dense_relation(m, normalize, self_loops) for k, m in matrices.items()}
    if special:
        expected |= {"identity": np.eye(n), "zero": np.zeros((n, n))}
    assert graph.relation_names == tuple(expected)
    actual = dense(graph)
    for name, matrix in expected.items():
        np.testing.assert_allclose(actual[name], matrix, rtol=1e-14, atol=0, err_msg=name)
    assert_well_formed(graph)


def test_normalize_may_differ_between_relations():
    rng = np.random.default_rng(0)
    matrices = {name: rng.integers(0, 3, (6, 6)).astype(float) for name in "abc"}
    modes = {"a": "sym", "b": "row"}
    graph = RelationGraph.from_scipy(
        {k: sp.coo_array(m) for k, m in matrices.items()},
        normalize=modes,
        self_loops=True,
        dtype=torch.float64,
    )
    for name, matrix in matrices.items():
        expected = dense_relation(matrix, modes.get(name), True)
        np.testing.assert_allclose(dense(graph)[name], expected, rtol=1e-14)


def test_self_loops_identity_and_zero_cost_no_edges():
    a = sp.csr_array(np.array([[0, 1, 1], [0, 0, 0], [1, 0, 0]]))
    plain = RelationGraph.from_scipy({"a": a})
    full = RelationGraph.from_scipy(
        {"a": a}, normalize="row", self_loops=True, identity=True, zero=True
    )
    assert full.num_edges == plain.num_edges == 3
    assert full.num_segments == plain.num_segments == 2
    assert full.loop.tolist() == [1.0, 1.0, 0.0]
    torch.testing.assert_close(full.forward.seg_loop, torch.tensor([1 / 3, 1 / 2]))


@pytest.mark.parametrize("normalize", [None, "row"])
def test_values_that_depend_on_the_pair_only_are_stored_per_pair(normalize):
    a = sp.csr_array(np.array([[0, 1, 1], [0, 0, 0], [1, 0, 0]]))
    forward = RelationGraph.from_scipy({"a": a}, normalize=normalize).forward
    assert forward.edge_val is None
    assert (forward.seg_val is None) == (normalize is None)
    weighted = RelationGraph.from_scipy({"a": a * 2}).forward
    assert weighted.seg_val.tolist() == [2.0, 2.0]


def test_symmetric_normalisation_folds_self_loops_only_where_all_senders_receive():
    both_ways = sp.csr_array(np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]]))
    one_way = sp.csr_array(np.array([[0, 1, 0], [0, 0, 0], [0, 0, 0]]))
    graph = RelationGraph.from_scipy(
        {"both": both_ways, "one": one_way}, normalize="sym", self_loops=True
    )
    assert graph.loop.tolist() == [1.0, 0.0]
    assert graph.num_edges == 2 + (1 + 3)
    assert graph.forward.edge_added.sum() == 3
    assert repr(graph).endswith("both 2 + loops, one 1 + loops)")


@pytest.mark.parametrize("normalize", ["row", "sym"])
def test_a_row_of_stored_zeros_stays_zero(normalize):
    a = sp.coo_array((np.array([0.0, 0.0, 2.0]), ([0, 0, 1], [0, 1, 1])), (2, 2))
    graph = RelationGraph.from_scipy({"a": a}, normalize=normalize)
    assert graph.num_edges == 3
    assert dense(graph)["a"].tolist() == [[0.0, 0.0], [0.0, 1.0]]


def edge_lists():
    """Two typed relations with duplicates, isolated nodes and an empty relation."""
    return {
        ("author", "writes", "paper"): torch.tensor([[0, 0, 2, 0], [1, 0, 1, 1]]),
        ("paper", "cites", "paper"): torch.tensor([[0], [3]]),
        ("paper", "in", "venue"): torch.empty(2, 0, dtype=torch.int64),
    }


COUNTS = {"author": 3, "paper": 4, "venue": 2}
EXPECTED = {  # global ids: authors 0-2, papers 3-6, venues 7-8; the receiving node is the row
    "author__writes__paper": {(4, 0): 2.0, (3, 0): 1.0, (4, 2): 1.0},
    "paper__cites__paper": {(6, 3): 1.0},
    "paper__in__venue": {},
}


def assert_expected(graph):
    assert graph.num_nodes == 9
    assert graph.node_types == {
        "author": slice(0, 3),
        "paper": slice(3, 7),
        "venue": slice(7, 9),
    }
    assert graph.relation_names == tuple(EXPECTED)
    for name, matrix in dense(graph).items():
        entries = {(int(i), int(j)): float(matrix[i, j]) for i, j in np.argwhere(matrix)}
        assert entries == EXPECTED[name]
    assert_well_formed(graph)


def typed_matrices():
    out = {}
    for key, (source, target) in edge_lists().items():
        shape = (COUNTS[key[2]], COUNTS[key[0]])
        out[key] = sp.coo_array((np.ones(len(source)), (target.numpy(), source.numpy())), shape)
    return out


def test_from_edge_index_with_node_types():
    assert_expected(RelationGraph.from_edge_index(edge_lists(), COUNTS))


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "lil", "dok"])
def test_from_scipy_formats(kind):
    matrices = {key: m.asformat(kind) for key, m in typed_matrices().items()}
    assert_expected(RelationGraph.from_scipy(matrices, num_nodes=COUNTS))


@pytest.mark.parametrize("layout", ["coo", "csr"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_from_torch_sparse(layout, dtype):
    matrices = {}
    for key, m in typed_matrices().items():
        index = torch.tensor(np.stack([m.row, m.col]))
        matrix = torch.sparse_coo_tensor(index, torch.tensor(m.data).to(dtype), m.shape)
        matrices[key] = matrix if layout == "coo" else matrix.coalesce().to_sparse_csr()
    assert_expected(RelationGraph.from_torch_sparse(matrices, num_nodes=COUNTS))


def test_from_hetero_data():
    hetero = pytest.importorskip("torch_geometric.data").HeteroData()
    for kind, count in COUNTS.items():
        hetero[kind].num_nodes = count
    for key, index in edge_lists().items():
        hetero[key].edge_index = index
    assert_expected(RelationGraph.from_hetero_data(hetero))
    key = ("paper", "cites", "paper")
    hetero[key].edge_weight = torch.tensor([0.5])
    weighted = RelationGraph.from_hetero_data(hetero, identity=True)
    assert dense(weighted)["paper__cites__paper"][6, 3] == 0.5
    assert weighted.relation_names[-1] == "identity"
    hetero[key].edge_weight.requires_grad_()
    with pytest.raises(ValueError, match="with_values"):
        RelationGraph.from_hetero_data(hetero)


class DglLike:
    """The part of DGL's graph interface that `from_dgl` relies on (DGL has no current build)."""

    ntypes = tuple(COUNTS)
    canonical_etypes = tuple(edge_lists())

    def num_nodes(self, kind):
        return COUNTS[kind]

    def edges(self, etype):
        return tuple(edge_lists()[etype])


def test_from_dgl():
    assert_expected(RelationGraph.from_dgl(DglLike()))


def test_edge_index_of_any_integer_type_and_layout():
    index = torch.tensor([[0, 1], [1, 2], [2, 0]], dtype=torch.int32).T  # not contiguous
    graph = RelationGraph.from_edge_index({"a": index}, 3)
    assert dense(graph)["a"].tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0]]


def test_round_trip_through_scipy_keeps_every_matrix():
    options = {"normalize": "row", "self_loops": True, "identity": True, "zero": True}
    graph = RelationGraph.from_edge_index(edge_lists(), COUNTS, **options)
    again = RelationGraph.from_scipy(graph.to_scipy())
    for name, matrix in dense(graph).items():
        np.testing.assert_array_equal(dense(again)[name], matrix)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("options", [{}, {"normalize": "sym", "self_loops": True, "zero": True}])
def test_save_and_load(tmp_path, options, dtype):
    graph = RelationGraph.from_edge_index(edge_lists(), COUNTS, dtype=dtype, **options)
    graph.save(tmp_path / "graph.npz")
    loaded = RelationGraph.load(str(tmp_path / "graph.npz"))
    assert_same(loaded, graph)
    assert [p.name for p in tmp_path.iterdir()] == ["graph.npz"]


def assert_same(a, b):
    assert (a.relation_names, a.node_counts) == (b.relation_names, b.node_counts)
    assert torch.equal(a.loop, b.loop)
    for x, y in ((a.forward, b.forward), (a.backward, b.backward)):
        for name, tensor in vars(y).items():
            other = getattr(x, name)
            if tensor is None:
                assert other is None, name
            else:
                assert other.dtype == tensor.dtype
                assert torch.equal(other, tensor), name


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g))])
def test_copies_are_equal(duplicate):
    graph = RelationGraph.from_edge_index(edge_lists(), COUNTS, normalize="row", self_loops=True)
    assert_same(duplicate(graph), graph)


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


def test_indices_widen_beyond_the_limit(monkeypatch):
    narrow = RelationGraph.from_edge_index(edge_lists(), COUNTS)
    assert narrow.index_dtype == torch.int32
    monkeypatch.setattr("tensus_tn.propagation.segments.INT32_LIMIT", 9)
    wide = RelationGraph.from_edge_index(edge_lists(), COUNTS)
    assert wide.index_dtype == torch.int64
    assert wide.backward.edge_perm.dtype == torch.int64
    assert_expected(wide)
    monkeypatch.setattr("tensus_tn.propagation.segments.INT32_LIMIT", 10)
    assert RelationGraph.from_edge_index(edge_lists(), COUNTS).index_dtype == torch.int32


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


def test_later_changes_of_the_input_do_not_reach_the_graph():
    matrix = sp.csr_array(np.array([[0.0, 2.0], [3.0, 0.0]]))
    index, weight = torch.tensor([[0, 1], [1, 0]]), torch.tensor([3.0, 2.0], dtype=torch.float64)
    graphs = [
        RelationGraph.from_scipy({"a": matrix}, dtype=torch.float64),
        RelationGraph.from_edge_index(
            {"a": index}, 2, edge_weight={"a": weight}, dtype=torch.float64
        ),
    ]
    matrix.data[:] = 7
    matrix.indices[:] = 0
    index[:] = 0
    weight[:] = 7
    for graph in graphs:
        assert dense(graph)["a"].tolist() == [[0.0, 2.0], [3.0, 0.0]]


def test_relation_index():
    graph = RelationGraph.from_edge_index(edge_lists(), COUNTS, identity=True)
    assert graph.relation_index(("paper", "cites", "paper")) == 1
    assert graph.relation_index("paper__cites__paper") == 1
    assert graph.relation_index("identity") == 3
    with pytest.raises(ValueError, match="no relation 'cites' among"):
        graph.relation_index("cites")


SQUARE = sp.eye_array(3, format="csr")
INDEX = torch.tensor([[0, 1], [1, 2]])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: from_index(INDEX + 1),
            ValueError,
            "receiving node 3 is out of range, there are 3",
        ),
        (lambda: from_index(INDEX.flip(0) + 1), ValueError, "sending node 3 is out of range"),
        (lambda: from_index(INDEX - 1), ValueError, "sending node -1 is out of range"),
        (lambda: from_index(INDEX.double()), TypeError, "expected integers, got torch.float64"),
        (lambda: from_index(INDEX.bool()), TypeError, "expected integers, got torch.bool"),
        (lambda: from_index(INDEX.T[:1]), ValueError, r"shape \(2, E\), got \(1, 2\)"),
        (lambda: from_index([[0], [1]]), TypeError, "must be a tensor, got <class 'list'>"),
        (lambda: from_index(INDEX, weight=[1.0, float("nan")]), ValueError, "must be finite"),
        (lambda: from_index(INDEX, weight=[1.0, float("inf")]), ValueError, "must be finite"),
        (lambda: from_index(INDEX, weight=[1.0]), ValueError, r"2 edges, got shape \(1,\)"),
        (lambda: from_index(INDEX, weight=[1.0, 1j]), TypeError, "must be real"),
        (lambda: from_index(INDEX, weight=[1.0, 1e300]), ValueError, "not finite in torch.float32"),
        (
            lambda: from_index(INDEX, weight=[1.0, -1.0], normalize="row"),
            ValueError,
            "'a' has negative values: it can't be normalised",
        ),
        (lambda: from_index(INDEX, normalize="rows"), ValueError, "'row' or 'sym', got 'rows'"),
        (lambda: from_index(INDEX, normalize={"b": "row"}), ValueError, "normalize names 'b'"),
        (lambda: from_index(INDEX, normalize={"a": 1}), ValueError, "'row' or 'sym', got 1"),
        (lambda: from_index(INDEX, dtype=torch.bfloat16), TypeError, "float32 or float64"),
        (lambda: from_index(INDEX, num_nodes=-1), ValueError, "must not be negative, got -1"),
        (lambda: from_index(INDEX, num_nodes=3.0), TypeError, "must be an int, got 3.0"),
        (lambda: from_index(INDEX, num_nodes={"n": 3}), ValueError, "'node' is not among"),
        (lambda: from_index(INDEX, num_nodes=2**40), ValueError, "do not fit a 64-bit edge key"),
        (lambda: from_index(INDEX, selfloops=True), TypeError, "selfloops"),
        (
            lambda: RelationGraph.from_edge_index({"a": INDEX}, 3, edge_weight={"b": INDEX}),
            ValueError,
            "edge_weight names 'b'",
        ),
        (
            lambda: RelationGraph.from_edge_index({("x", "r", "y"): INDEX}, {"x": 3}),
            ValueError,
            r"node type 'y' is not among \['x'\]",
        ),
        (
            lambda: RelationGraph.from_edge_index({("x", "r"): INDEX}, {"x": 3}),
            TypeError,
            "three strings",
        ),
        (
            lambda: RelationGraph.from_edge_index({"identity": INDEX}, 3),
            ValueError,
            "'identity' is reserved .* identity=True",
        ),
        (lambda: RelationGraph.from_scipy({"zero": SQUARE}), ValueError, "'zero' is reserved"),
        (
            lambda: RelationGraph.from_scipy({"identity": 2 * sp.eye_array(3)}),
            ValueError,
            "'identity' is reserved",
        ),
        (
            lambda: RelationGraph.from_scipy({"identity": sp.eye_array(3)}, self_loops=True),
            ValueError,
            "without self-loops",
        ),
        (
            lambda: RelationGraph.from_edge_index(
                {"x__r__x": INDEX, ("x", "r", "x"): INDEX}, {"x": 3, "node": 3}
            ),
            ValueError,
            "two relations are named 'x__r__x'",
        ),
        (
            lambda: RelationGraph.from_edge_index(INDEX, 3),
            TypeError,
            r"dict from the names of relations to tensors \(2, E\), got Tensor",
        ),
        (
            lambda: RelationGraph.from_edge_index({"a": INDEX}, 3, edge_weight=torch.ones(2)),
            TypeError,
            r"dict from the names of relations to weights \(E,\), got Tensor",
        ),
        (
            lambda: RelationGraph.from_edge_index({"a": INDEX}, 3, edge_weight={"a": [1.0, 2.0]}),
            TypeError,
            "must be a tensor, got <class 'list'>",
        ),
        (
            lambda: RelationGraph.from_scipy([SQUARE]),
            TypeError,
            "dict from the names of relations to sparse matrices, got list",
        ),
        (
            lambda: RelationGraph.from_edge_index(
                {"a": INDEX}, 3, edge_weight={"a": torch.ones(2, requires_grad=True)}
            ),
            ValueError,
            "'a' require grad: .*with_values",
        ),
        (
            lambda: RelationGraph.from_scipy({"a": SQUARE, "b": sp.eye_array(4)}),
            ValueError,
            r"'b': expected a matrix of shape \(3, 3\) .*, got \(4, 4\)",
        ),
        (
            lambda: RelationGraph.from_scipy({"a": sp.csr_array((2, 3))}),
            ValueError,
            r"shape \(2, 2\)",
        ),
        (
            lambda: RelationGraph.from_scipy({("x", "r", "y"): SQUARE}),
            ValueError,
            "give num_nodes for every node type",
        ),
        (lambda: RelationGraph.from_scipy({}), ValueError, "give num_nodes"),
        (lambda: RelationGraph.from_scipy({"a": np.eye(3)}), TypeError, "scipy sparse matrix"),
        (
            lambda: RelationGraph.from_scipy({"a": torch.eye(3).to_sparse()}),
            TypeError,
            "scipy sparse matrix",
        ),
        (
            lambda: RelationGraph.from_scipy({"a": sp.coo_array(np.ones(3))}),
            ValueError,
            r"expected a matrix, got shape \(3,\)",
        ),
        (
            lambda: RelationGraph.from_torch_sparse({"a": torch.eye(3)}),
            TypeError,
            "COO or CSR layout, got torch.strided",
        ),
        (
            lambda: RelationGraph.from_torch_sparse({"a": torch.ones(2, 2, 2).to_sparse()}),
            ValueError,
            r"expected a matrix, got shape \(2, 2, 2\)",
        ),
        (
            lambda: RelationGraph.from_torch_sparse({"a": torch.ones(2, 2).to_sparse(1)}),
            ValueError,
            "one value an entry, got a hybrid tensor",
        ),
        (
            lambda: RelationGraph.from_torch_sparse(
                {"a": torch.eye(3).to_sparse().requires_grad_()}
            ),
            ValueError,
            "with_values",
        ),
    ],
)
def test_bad_input(make, error, message):
    with pytest.raises(error, match=message):
        make()


def from_index(index, num_nodes=3, weight=None, **options):
    weights = None if weight is None else {"a": torch.from_numpy(np.array(weight))}
    return RelationGraph.from_edge_index({"a": index}, num_nodes, edge_weight=weights, **options)


def test_hetero_data_without_what_is_needed():
    hetero = pytest.importorskip("torch_geometric.data").HeteroData()
    hetero["paper"].num_nodes = 3
    hetero["paper", "cites", "paper"].edge_attr = torch.ones(2)
    with pytest.raises(ValueError, match="has no edge_index"):
        RelationGraph.from_hetero_data(hetero)
    hetero["paper", "cites", "paper"].adj_t = torch.eye(3).to_sparse_csr()
    with pytest.raises(ValueError, match="has no edge_index, but adj_t: leave out ToSparseTensor"):
        RelationGraph.from_hetero_data(hetero)


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
