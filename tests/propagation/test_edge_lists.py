"""Every form of a graph gives the same edges; what is wrong is refused by name."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from tensus_tn.propagation.relation_graph import RelationGraph
from tests.propagation.graphs import COUNTS, assert_expected, dense, edge_lists


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
    assert RelationGraph.from_hetero_data(hetero).values().requires_grad


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
        (
            lambda: from_index(INDEX, weight=[1.0, 1e300], dtype=torch.float32),
            ValueError,
            "not finite in torch.float32",
        ),
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
        (lambda: from_index(INDEX, num_nodes=2**40), ValueError, "are too many"),
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
            "one value per entry, got a hybrid tensor",
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
    with pytest.raises(ValueError, match="has neither edge_index nor adj_t"):
        RelationGraph.from_hetero_data(hetero)
    hetero["paper", "cites", "paper"].adj_t = torch.eye(3).to_sparse_csr()
    with pytest.raises(ValueError, match="edge_attr, which would be ignored"):
        RelationGraph.from_hetero_data(hetero)


@pytest.mark.parametrize("normalize", [None, "row", "sym"])
@pytest.mark.parametrize("self_loops", [False, True])
def test_values_that_learn_are_those_that_do_not(normalize, self_loops):
    index = torch.tensor([[0, 1, 1, 2, 0], [1, 0, 0, 2, 3]])  # one edge twice, one to itself
    weight = torch.rand(5, dtype=torch.float64) + 0.1
    options = {"normalize": normalize, "self_loops": self_loops, "identity": True}
    constant = RelationGraph.from_edge_index({"a": index}, 4, edge_weight={"a": weight}, **options)
    learned = RelationGraph.from_edge_index(
        {"a": index}, 4, edge_weight={"a": weight.clone().requires_grad_()}, **options
    )
    assert learned.values().requires_grad
    for name, matrix in learned.to_scipy().items():
        np.testing.assert_allclose(matrix.toarray(), constant.to_scipy()[name].toarray())


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([np.float64], torch.float64),
        ([np.float32], torch.float32),
        ([np.float32, np.float64], torch.float64),
        ([np.float32, np.int64], torch.float32),
        ([np.int64], None),
        ([bool], None),
        ([], None),
    ],
)
def test_values_keep_their_type(given, expected):
    """A third of a float64 matrix is a third, not 0.33333334."""
    matrices = {f"r{k}": SQUARE.astype(dtype) for k, dtype in enumerate(given)}
    expected = torch.get_default_dtype() if expected is None else expected
    graph = RelationGraph.from_scipy(matrices, num_nodes=3)
    assert graph.dtype == expected
    index = dict.fromkeys(matrices, INDEX)
    weight = {key: torch.from_numpy(m.data[:2].copy()) for key, m in matrices.items()}
    assert RelationGraph.from_edge_index(index, 3, edge_weight=weight).dtype == expected
    sparse = {key: torch.from_numpy(m.toarray()).to_sparse() for key, m in matrices.items()}
    assert RelationGraph.from_torch_sparse(sparse, num_nodes=3).dtype == expected


def test_a_third_of_a_float64_matrix_is_a_third():
    graph = RelationGraph.from_scipy({"a": SQUARE / 3})
    assert graph.values().tolist() == [1 / 3] * 3
    narrow = {"a": torch.tensor([1.0, 2.0], dtype=torch.bfloat16)}
    assert RelationGraph.from_edge_index({"a": INDEX}, 3, edge_weight=narrow).dtype == torch.float32
