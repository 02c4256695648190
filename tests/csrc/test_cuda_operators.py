"""The operators for CUDA tensors, built to take CPU tensors upon the kernels of simt_build.py.

They are compared with the operators for the CPU. A GPU is needed only to run them as they are:
see tests/propagation/test_cuda.py.
"""

import ctypes
import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.utils import cpp_extension
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.cuda import traffic
from tensus_tn import Dag, RelationGraph, propagate, propagate_dag
from tensus_tn.propagation import operators
from tensus_tn.propagation.arguments import Arguments, Wanted
from tensus_tn.propagation.reference import only_at
from tensus_tn.propagation.rows import row_maps
from tensus_tn.propagation.segments import order_rows
from tests.csrc.building import CSRC, build
from tests.csrc.simt_build import REALS, SHARED, SPLIT, needs_simt

pytestmark = needs_simt


class OnSimt(TorchDispatchMode):
    """Within it the propagations of tensus_tn are those for CUDA tensors, on the CPU.

    Rows are ordered as they are on a GPU, or left as they are, as in a trace of torch.compile.
    """

    def __init__(self, ordered=True):
        super().__init__()
        self.ordered = ordered

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "tensus_tn" and func._opname.startswith("propagate"):
            args = as_on_gpu(
                args, -len(Wanted._fields) if func._opname.endswith("backward") else 0, self.ordered
            )
            func = getattr(torch.ops.tensus_simt, func._opname).default
        return func(*args, **(kwargs or {}))


def as_on_gpu(args, end, ordered):
    """The arguments with the order of rows, if asked for, and with row maps."""
    place = len(args) + end - len(Arguments._fields)
    given = Arguments(*args[place:][: len(Arguments._fields)])
    forward, backward = (
        [*way[:size], *(order_rows(way[0], way[2], SPLIT) if ordered else ())]
        for way, size in ((given.forward, 4), (given.backward, 5))
    )
    given = given._replace(forward=forward, backward=backward)
    if given.needed:
        given = given._replace(needed=[*given.needed, row_maps(given.needed, len(given.h))])
    return [*args[:place], *given, *args[place + len(given) :]]


@pytest.fixture(scope="session")
def on_simt(simt, tmp_path_factory):
    target = tmp_path_factory.mktemp("operators") / "libtensus_simt.so"
    flags = [f"-isystem{path}" for path in cpp_extension.include_paths()]
    flags += ["-DTORCH_TARGET_VERSION=0x020d000000000000", "-DTENSUS_SIMT", "-O0"]
    kernels = [Path(simt.__file__).with_name(f"{name}.o") for name in ("simt", *REALS)]
    links = [*(f"-L{path}" for path in cpp_extension.library_paths()), "-ltorch_cpu", "-ltorch"]
    source = CSRC / "ops_cuda.cpp"
    build(target, [("ops", source, [*SHARED, *flags])], ["-shared", *kernels, *links])
    library = torch.library.Library("tensus_simt", "DEF")
    for name, schema in operators.SCHEMAS.items():
        library.define(name + schema)
    torch.ops.load_library(target)
    OnSimt.launches = ctypes.CDLL(str(target)).simt_launches
    yield OnSimt
    library._destroy()


def random_problem(dtype, features, seed=0):
    """A DAG over a graph with a hub, self-loops of special weights, and learned values."""
    rng = np.random.default_rng(seed)
    matrices = {}
    for i in range(3):
        row, col = rng.integers(0, 12, (2, 40))
        row[: 20 * (i == 0)] = 5
        matrices[f"r{i}"] = sp.csr_array((np.ones(40), (row, col)), shape=(12, 12))
    sums = torch.float64 if dtype == torch.float64 else torch.float32
    graph = RelationGraph.from_scipy(
        matrices, normalize="row", self_loops=True, identity=True, zero=True, dtype=sums
    )
    values = graph.values().clone().requires_grad_()
    dag, rank = Dag.complete(3), [2, 1, 3, 2]
    h = torch.randn(12, 2, features, dtype=sums).to(dtype).requires_grad_()
    weights = {
        (j, k): torch.randn(5, rank[j], rank[k], dtype=sums).requires_grad_() for j, k in dag.edges
    }
    return graph.with_values(values), dag, h, weights, values


def run_problem(graph, dag, h, weights, values, choices=None):
    states = propagate_dag(graph, dag, h, weights, choices=choices, return_states=True)
    used = [states[1], states[3]]
    generator = torch.Generator().manual_seed(1)
    grads = [torch.randn(s.shape, generator=generator).to(s) for s in used]
    needed = [h, values, *weights.values()]
    return [*states.values(), *torch.autograd.grad(used, needed, grads, retain_graph=True)]


TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 1e-5,
    torch.bfloat16: 2e-2,
    torch.float16: 3e-3,
}


@pytest.mark.parametrize("features", [8, 5])
@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("ordered", [True, False])
def test_operators(on_simt, monkeypatch, ordered, dtype, features):
    if dtype == torch.float16:  # not taken on the CPU, so compared with the sums themselves
        module = sys.modules["tensus_tn.propagation.functional"]
        monkeypatch.setattr(module, "_DTYPES", (torch.float16, torch.float32))
    problem = random_problem(dtype, features)
    with on_simt(ordered):
        got = run_problem(*problem)
    if dtype == torch.float16:
        graph, dag, h, weights, values = problem
        problem = graph, dag, h.detach().float().requires_grad_(), weights, values
    for a, b in zip(got, run_problem(*problem), strict=True):
        error = (a.double() - b.double()).abs().max()
        assert error <= TOLERANCE[dtype] * b.abs().max()


@pytest.mark.parametrize("names", [["r1"], ["r0", "r2", "zero"], []])
def test_operators_with_choices(on_simt, names):
    problem = random_problem(torch.float64, 8)
    choices = {(0, 1): names, (1, 2): names, (2, 3): ["r2", "identity"], (0, 3): names}
    with on_simt():
        got = run_problem(*problem, choices)
    for a, b in zip(got, run_problem(*problem, choices), strict=True):
        assert (a - b).abs().max() <= 1e-12 * b.abs().max()
        assert torch.equal(a == 0, b == 0)


def test_what_is_not_chosen_is_not_read(on_simt):
    edges = {"a": sp.csr_array([[0, 0], [2.0, 0]]), "b": sp.csr_array([[0, 0], [0, 1.0]])}
    graph, dag = RelationGraph.from_scipy(edges), Dag.path(1)
    h = torch.tensor([[1.0], [torch.inf]], requires_grad=True)
    weights = {(0, 1): torch.ones(2, 1, 1, requires_grad=True)}
    with on_simt():
        sink = propagate_dag(graph, dag, h, weights, choices={(0, 1): ["a"]})
        _, dw = torch.autograd.grad(sink.sum(), [h, weights[0, 1]])
    assert sink.flatten().tolist() == [0, 2]
    assert dw.flatten().tolist() == [2, 0]


ROWS = {  # and a support
    "some, in any order, one twice": (torch.tensor([7, 5, 0, 5]), None),
    "none": (torch.arange(0), None),
    "all but one": (torch.arange(11), None),
    "from a support": (torch.tensor([1, 5, 6]), torch.tensor([5, 8])),
}


@pytest.mark.parametrize(
    ("rows", "names", "dtype"),
    [
        (rows, names, list(TOLERANCE)[place % 3])
        for place, (rows, names) in enumerate(itertools.product(ROWS, [None, ["r0", "identity"]]))
    ],
)
def test_rows_are_those_of_the_whole_sink(on_simt, rows, names, dtype):
    """To the bit, with all gradients: those of the values among them."""
    graph, dag, h, weights, values = random_problem(dtype, 8)
    wanted, support = ROWS[rows]
    choices = names and {(0, 1): names, (1, 2): names, (0, 3): ["r2"]}
    grad = torch.randn(len(wanted), 2, 8, generator=torch.Generator().manual_seed(2)).to(dtype)
    needed = [h, values, *weights.values()]

    def run(source, **only):
        sink = propagate_dag(graph, dag, source, weights, choices=choices, **only)
        sink = sink if only else sink[wanted]
        return [sink, *torch.autograd.grad(sink, needed, grad)]

    with on_simt():
        got = run(h, rows=wanted, support=support)
        want = run(h if support is None else only_at(h, support))
    assert all(map(torch.equal, got, want))


def test_second_derivatives_at_some_rows(on_simt):
    graph, dag, h, weights, values = random_problem(torch.float64, 4)

    def run():
        sink = propagate_dag(graph, dag, h, weights, rows=torch.tensor([5, 3]))
        first = torch.autograd.grad(sink.square().sum(), [h, values], create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), [h, *weights.values()])

    with on_simt():
        got = run()
    for a, b in zip(got, run(), strict=True):
        assert (a - b).abs().max() <= 1e-11 * b.abs().max()


def test_no_launch_more_for_some_rows(on_simt):
    graph, dag, h, weights, _ = random_problem(torch.float32, 8)
    plan = graph.plan_rows(dag, torch.tensor([5]))
    counts = []
    for rows in (None, plan):
        with on_simt(), torch.no_grad():
            start = on_simt.launches()
            propagate_dag(graph, dag, h, weights, rows=rows)
            counts.append(on_simt.launches() - start)
    assert counts[0] == counts[1] > 0


GROUPS = {  # the group of each column
    "at borders of vectors": [0] * 8 + [1] * 4 + [3] * 20,
    "out of order": [1, 0, 1, 1, 2, 0, 2, 2, 2],
    "each its own": list(range(70)),
}


@pytest.mark.parametrize(
    ("groups", "rows"),
    [*((groups, None) for groups in GROUPS), ("at borders of vectors", torch.tensor([5, 2]))],
)
def test_groups_of_columns(on_simt, groups, rows):
    graph, dag, _, weights, values = random_problem(torch.float64, 8)
    groups = GROUPS[groups]
    h = torch.randn(12, 2, len(groups), dtype=torch.float64, requires_grad=True)
    scale = torch.linspace(1, 2, max(groups) + 1, dtype=torch.float64).reshape(-1, 1, 1, 1)
    weights = {edge: (scale * w).detach().requires_grad_() for edge, w in weights.items()}

    def run():
        choices = {(0, 1): ["r0", "identity"]}
        sink = propagate_dag(graph, dag, h, weights, groups=groups, rows=rows, choices=choices)
        loss = (sink * torch.arange(sink.numel()).reshape(sink.shape)).sum()
        return [sink, *torch.autograd.grad(loss, [h, values, *weights.values()])]

    with on_simt():
        got = run()
    for a, b in zip(got, run(), strict=True):
        assert (a - b).abs().max() <= 1e-12 * b.abs().max()


def test_no_launch_more_for_groups(on_simt):
    graph, _, h, _, _ = random_problem(torch.float32, 8)
    counts = []
    for groups in (None, [0, 0, 0, 0, 1, 1, 1, 1]):
        w = torch.randn(5, 2, 3) if groups is None else torch.randn(2, 5, 2, 3)
        with on_simt():
            start = on_simt.launches()
            torch.autograd.grad(propagate(graph, h, w, groups=groups).sum(), h)
            counts.append(on_simt.launches() - start)
    assert counts[0] == counts[1] > 0


@pytest.mark.parametrize("inner", [1, 2, 4])
def test_launches_are_those_that_are_foretold(on_simt, monkeypatch, inner):
    """The count on docs/cuda-traffic.md, on a graph with long rows."""
    monkeypatch.setattr(traffic, "SPLIT", SPLIT)
    graph = RelationGraph.from_scipy({"r": sp.csr_array(np.ones((12, 12)))}, identity=True)
    dag = Dag.complete(4)
    rank = {k: inner if 0 < k < 4 else 1 for k in dag.nodes}
    h = torch.randn(12, 1, 8, requires_grad=True)
    weights = {(j, k): torch.randn(2, rank[j], rank[k], requires_grad=True) for j, k in dag.edges}

    def foretold(backward):
        s = graph.backward if backward else graph.forward
        each = (traffic.ours(graph, s, one, 8) for one in traffic.passes(dag, rank, backward))
        return sum(one.launches for one in each)

    with on_simt():
        start = on_simt.launches()
        sink = propagate_dag(graph, dag, h, weights)
        between = on_simt.launches()
        torch.autograd.grad(sink.sum(), [h, *weights.values()])
        end = on_simt.launches()
    assert between - start == foretold(backward=False)
    assert end - between == foretold(backward=True)


def test_operators_refuse_what_does_not_fit(on_simt):
    graph, _, h, _, _ = random_problem(torch.float32, 8)
    f, b = graph.forward, graph.backward
    right = {
        "h": h.detach(), "w": torch.ones(5 * 2 * 3), "edge_val": f.edge_val.detach(),
        "seg_val": None, "back_edge_val": None, "back_seg_val": None, "loop": graph.loop,
        "seg_loop": f.seg_loop, "forward": [f.row_ptr, f.seg_rel, f.seg_ptr, f.col],
        "backward": [b.row_ptr, b.seg_rel, b.seg_ptr, b.col, b.edge_perm],
        "ranks": [2, 3], "tails": [0], "heads": [1], "chosen": None,
        "needed": [], "group_sizes": None,
    }  # fmt: skip
    order = order_rows(f.row_ptr, f.seg_ptr, SPLIT)
    op = torch.ops.tensus_simt.propagate
    assert op(*right.values())[0].shape == (12, 3, 8)
    for name, wrong, text in [
        ("h", h.detach()[0], r"shape \(N, P, F\)"),
        ("h", h.detach().long(), "h must be float32"),
        ("h", torch.ones(12, 3, 8), "h must have rank 2, got 3"),
        ("w", torch.ones(31), "w must hold a multiple of 6"),
        ("w", torch.ones(30).double(), "w must be a contiguous vector of the expected type"),
        ("edge_val", torch.ones(3), "edge_val must have"),
        ("loop", torch.ones(4), "loop must have 5 entries, got 4"),
        ("loop", None, "seg_loop needs loop"),
        ("forward", right["forward"][:3], "forward must hold"),
        ("forward", [f.row_ptr[:-1], *right["forward"][1:]], "row_ptr must have 13 entries"),
        ("forward", [f.row_ptr.float(), *right["forward"][1:]], "int32 or int64"),
        ("forward", [*right["forward"], f.col[:3]], "the order of rows is three tensors"),
        ("forward", [*right["forward"], *order[:2], f.col[:3]], "and all other rows"),
        (
            "forward",
            [*right["forward"], *order[:2], order[2].long()],
            "the index type of the graph",
        ),
        ("heads", [0], "does not lead onwards"),
        ("chosen", [1, 0], "chosen must have 5 entries, got 2"),
        ("chosen", [1, 0, 0, 0, -1], "chosen must be 0 or 1, got -1"),
        ("needed", [f.col[:3], f.row_ptr], "needed must name rows of 2 states, got 1"),
        ("needed", [f.col[:3], f.col[:3], f.row_ptr], "needed must end with row maps"),
        ("group_sizes", [4, 5], "group_sizes must add up to 8"),
    ]:
        with pytest.raises(RuntimeError, match=text):
            op(*{**right, name: wrong}.values())
