"""The torch-free kernels on numpy arrays, against the formulas of kernels.h written out densely.

All numbers are small integers, so that every sum is exact in its type, whatever its order: results
are compared for equality. The float64 ones are too large for float32, so a narrower sum would show.
"""

import importlib.util
import sysconfig
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.csrc.building import HERE, INSTRUCTION_SETS, build, kernel_jobs, needs_compiler

pybind11 = pytest.importorskip("pybind11")
PYTHON_HEADERS = Path(sysconfig.get_path("include"))

pytestmark = [
    needs_compiler,
    pytest.mark.skipif(not (PYTHON_HEADERS / "Python.h").exists(), reason="no Python.h"),
]


@pytest.fixture(scope="session")
def bindings(tmp_path_factory):
    name = "kernel_bindings" + sysconfig.get_config_var("EXT_SUFFIX")
    target = tmp_path_factory.mktemp("bindings") / name
    shared = ["-fPIC", "-fvisibility=hidden"]
    headers = [f"-I{path}" for path in (pybind11.get_include(), PYTHON_HEADERS)]
    kernels = kernel_jobs({isa: [*shared, *flags] for isa, flags in INSTRUCTION_SETS.items()})
    jobs = [("bindings", HERE / "bindings.cpp", [*shared, *headers]), *kernels]
    build(target, jobs, ["-shared"])
    spec = importlib.util.spec_from_file_location("kernel_bindings", target)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", params=list(INSTRUCTION_SETS))
def kernels(bindings, request):
    """The bindings, with the kernels of one instruction set in use."""
    if not bindings.use(request.param):
        pytest.skip(f"this machine does not run {request.param}")
    assert bindings.in_use() == request.param
    return bindings


class Structure(NamedTuple):
    """A graph as kernels.h wants it; the row of each segment comes with it."""

    relations: int
    row_ptr: np.ndarray
    seg_rel: np.ndarray
    seg_ptr: np.ndarray
    col: np.ndarray
    row: np.ndarray

    @property
    def nodes(self):
        return len(self.row_ptr) - 1

    def of_edges(self, by_segment):
        """What belongs to a segment, for each of its edges."""
        return np.repeat(by_segment, np.diff(self.seg_ptr), axis=0)


class Link(NamedTuple):
    w: np.ndarray  # (C, P, Q)
    other: np.ndarray  # (N, Q, F)
    turned: bool  # each matrix of w is transposed in memory


def pointers(counts, index):
    return np.concatenate([[0], np.cumsum(counts)]).astype(index)


def random_structure(rng, nodes, relations, density, index):
    """Each pair (row, relation) has a segment with this probability, of up to a dozen edges or none."""
    row, relation = np.nonzero(rng.random((nodes, relations)) < density)
    counts = rng.integers(0, 13, len(row))
    return Structure(
        relations=relations,
        row_ptr=pointers(np.bincount(row, minlength=nodes), index),
        seg_rel=relation.astype(np.int32),
        seg_ptr=pointers(counts, index),
        col=rng.integers(0, max(nodes, 1), counts.sum()).astype(index),
        row=row,
    )


class Case:
    """A random problem of drawn sizes. Its graph has values and self-loops, or only some of them."""

    def __init__(
        self, seed, nodes, relations, densities, features, rank, far, real, index, options
    ):
        self.rng, self.real = np.random.default_rng(seed), real
        by_segment, by_edge, looped, special = options
        self.graph, self.pairs = (
            random_structure(self.rng, nodes, relations, density, index) for density in densities
        )
        self.seg_val = self.numbers(len(self.graph.seg_rel)) if by_segment else None
        self.edge_val = self.numbers(len(self.graph.col)) if by_edge else None
        self.loop = self.numbers(relations) if looped else None
        self.seg_loop = self.numbers(len(self.pairs.seg_rel)) if looped and special else None
        self.x = self.numbers(nodes, rank, features)
        self.links = []
        for k, q in enumerate(far):
            w = self.matrices(self.numbers, (relations, rank, q), turned=k % 2)
            self.links.append(Link(w, self.numbers(nodes, q, features), turned=k % 2))

    def numbers(self, *shape):
        largest = 2 if self.real == np.float32 else 300
        return self.rng.integers(-largest, largest + 1, shape).astype(self.real)

    def unset(self, *shape):
        return np.full(shape, np.nan, self.real)

    @staticmethod
    def matrices(make, shape, turned):
        """An array (C, P, Q), each matrix of which is transposed in memory if turned."""
        C, P, Q = shape
        return make(C, Q, P).swapaxes(1, 2) if turned else make(C, P, Q)

    def before(self, accumulate, *shape):
        """What a result holds before the call, and what of it is to be found in the result."""
        start = self.numbers(*shape) if accumulate else self.unset(*shape)
        return start, start.copy() if accumulate else np.zeros(shape)

    def bound(self, kernels):
        """The graph and its diagonal, as the kernels take them."""
        graph = kernels.Graph(*self.graph[:-1], self.seg_val, self.edge_val)
        return graph, kernels.Diagonal(self.loop, self.seg_loop, kernels.Graph(*self.pairs[:-1]))

    def dense(self):
        """A: the matrix of every relation with its diagonal, (C, N, N)."""
        g, (C, N) = self.graph, (self.graph.relations, self.graph.nodes)
        value = np.ones(len(g.col))
        if self.seg_val is not None:
            value = value * g.of_edges(self.seg_val)
        if self.edge_val is not None:
            value = value * self.edge_val
        A = np.zeros((C, N, N))
        np.add.at(A, (g.of_edges(g.seg_rel), g.of_edges(g.row), g.col), value)
        if self.loop is not None:
            diagonal = np.repeat(self.loop[:, None], N, axis=1)
            if self.seg_loop is not None:
                diagonal[self.pairs.seg_rel, self.pairs.row] = self.seg_loop
            A[:, range(N), range(N)] += diagonal
        return A


cases = st.builds(
    Case,
    seed=st.integers(0, 2**32 - 1),
    nodes=st.sampled_from([0, 1, 2, 5, 9]),
    relations=st.sampled_from([1, 2, 3, 40]),
    densities=st.tuples(*2 * [st.sampled_from([0, 0.3, 1])]),
    features=st.sampled_from([0, 1, 3, 4, 7, 8, 16, 17, 32, 64, 67, 128]),
    rank=st.integers(1, 5),
    far=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    real=st.sampled_from([np.float32, np.float64]),
    index=st.sampled_from([np.int32, np.int64]),
    options=st.tuples(*4 * [st.booleans()]),
)
kernel_test = settings(max_examples=300)


@given(case=cases, accumulate=st.booleans(), wanted=st.sampled_from(["out", "dw", "both"]))
@kernel_test
def test_gather_mix(kernels, case, accumulate, wanted):
    edges, results = [], []
    gathered = np.einsum("inm,mpf->inpf", case.dense(), case.x)
    for w, other, turned in case.links:
        edge = {"w": w, "other": other, "accumulate": accumulate}
        if wanted != "dw":
            edge["out"], start = case.before(accumulate, *other.shape)
            want = start + np.einsum("ipq,inpf->nqf", w, gathered)
            results.append((edge["out"], want))
        if wanted != "out":
            edge["dw"] = case.matrices(case.unset, w.shape, turned)
            results.append((edge["dw"], np.einsum("inpf,nqf->ipq", gathered, other)))
        edges.append(kernels.Edge(**edge))
    kernels.gather_mix(*case.bound(kernels), case.x, edges)
    for got, want in results:
        np.testing.assert_array_equal(got, want)


@given(case=cases, accumulate=st.booleans(), at_once=st.integers(1, 4))
@kernel_test
def test_mix_gather(kernels, case, accumulate, at_once):
    y, want = case.before(accumulate, *case.x.shape)
    for w, other, _ in case.links:  # the near state is y, so it owns the first axis of the matrices
        mixed = np.einsum("iqp,mpf->imqf", w, other)
        want = want + np.einsum("inm,imqf->nqf", case.dense(), mixed)
    edges = [kernels.Edge(w, other) for w, other, _ in case.links]
    kernels.mix_gather(*case.bound(kernels), y, accumulate, edges, at_once)
    np.testing.assert_array_equal(y, want)


@given(case=cases, accumulate=st.booleans())
@kernel_test
def test_edge_gradient(kernels, case, accumulate):
    g = case.graph
    grad, want = case.before(accumulate, len(g.col))
    relation, row = g.of_edges(g.seg_rel), g.of_edges(g.row)
    for w, other, _ in case.links:
        mixed = np.einsum("epq,eqf->epf", w[relation], other[row])
        want = want + np.einsum("epf,epf->e", mixed, case.x[g.col])
    edges = [kernels.Edge(w, other) for w, other, _ in case.links]
    kernels.edge_gradient(case.bound(kernels)[0], case.x, edges, grad, accumulate)
    np.testing.assert_array_equal(grad, want)


@pytest.mark.parametrize("index", [np.int32, np.int64])
class TestCheck:
    @given(
        seed=st.integers(0, 2**32 - 1),
        nodes=st.integers(0, 6),
        relations=st.integers(1, 4),
        density=st.sampled_from([0, 0.3, 1]),
    )
    @kernel_test
    def test_accepts_what_is_sound(self, kernels, index, seed, nodes, relations, density):
        graph = random_structure(np.random.default_rng(seed), nodes, relations, density, index)
        assert kernels.Graph(*graph[:-1]).check() is None

    @pytest.mark.parametrize(
        ("name", "position", "bad"),
        [
            ("row_ptr", 0, 1),
            ("row_ptr", 2, -1),
            ("row_ptr", 2, 7),
            ("row_ptr", -1, 5),
            ("row_ptr", -1, 7),
            ("seg_ptr", 0, 1),
            ("seg_ptr", 3, -1),
            ("seg_ptr", 3, 100),
            ("seg_ptr", -1, 0),
            ("seg_rel", 0, -1),
            ("seg_rel", -1, 2),
            ("seg_rel", 3, np.iinfo(np.int32).min),
            ("col", 0, -1),
            ("col", -1, 3),
            ("col", 1, "largest"),
            ("col", 1, "smallest"),
        ],
    )
    def test_names_what_is_wrong(self, kernels, index, name, position, bad):
        """Three nodes, two relations, all six segments, two edges each: one number of it changed."""
        parts = {
            "row_ptr": np.array([0, 2, 4, 6], index),
            "seg_rel": np.array([0, 1, 0, 1, 0, 1], np.int32),
            "seg_ptr": np.arange(0, 13, 2, dtype=index),
            "col": np.arange(12).astype(index) % 3,
        }
        assert kernels.Graph(2, **parts).check() is None
        limits = {"largest": np.iinfo(index).max, "smallest": np.iinfo(index).min}
        parts[name][position] = limits.get(bad, bad)
        damaged = kernels.Graph(2, **parts)
        assert damaged.check().startswith(f"{name} must")

        state, w = np.zeros((3, 1, 1)), np.zeros((2, 1, 1))
        edge = kernels.Edge(w, out=np.zeros_like(state))
        with pytest.raises(ValueError, match=f"{name} must"):  # nor do the bindings pass it on
            kernels.gather_mix(damaged, kernels.Diagonal(None, None, damaged), state, [edge])
