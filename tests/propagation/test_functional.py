"""propagate and propagate_dag against the dense formula, and what torch asks of an operator."""

import concurrent.futures
import multiprocessing
import os
import random
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.autograd import forward_ad

from tensus_tn.dag import Dag
from tensus_tn.propagation import extension, operators, reference, segments
from tensus_tn.propagation.functional import propagate, propagate_dag
from tensus_tn.propagation.relation_graph import RelationGraph

TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5, torch.bfloat16: 2e-2}
native = pytest.mark.skipif(extension._C is None, reason="needs the compiled extension")


# ---------------------------------------------------------------------------- the formula, densely


def dense(graph):
    matrices = [torch.from_numpy(a.toarray()).double() for a in graph.to_scipy().values()]
    size = graph.num_nodes
    return torch.stack(matrices) if matrices else torch.zeros(0, size, size, dtype=torch.float64)


def formula(a, h, w):
    return torch.einsum("imn,npf,ipq->mqf", a, h.double(), w.double())


def dag_formula(a, dag, h, weights):
    states = {dag.source: h.double()}
    for k in dag.nodes[1:]:
        into_k = [edge for edge in dag.edges if edge[1] == k]
        states[k] = sum(formula(a, states[j], weights[j, k]) for j, _ in into_k)
    return states


def only_chosen(graph, weights, choices):
    """The weights, with zeros where an edge does not use a relation."""

    def used(edge):
        names = (choices or {}).get(edge, graph.relation_names)
        return torch.tensor([name in names for name in graph.relation_names])[:, None, None]

    return {edge: torch.where(used(edge), w, 0.0) for edge, w in weights.items()}


def assert_close(got, want, dtype, size=None):
    """Equal up to rounding, relative to the largest entry, or to `size`, what is added up."""
    assert got.shape == want.shape
    if size is None:
        size = want.abs().max() if want.numel() else torch.ones(())
    error = (got.double() - want.double()).abs() / size.clamp_min(1e-30)
    assert (error <= TOLERANCE[dtype]).all(), f"relative error {error.max():.2e}"


# ---------------------------------------------------------------------------- graphs


def random_graph(nodes, edges, relations=3, *, seed=0, weighted=False, **options):
    """A graph with `edges` random edges (duplicates are summed) over `relations` relations."""
    rng = np.random.default_rng(seed)
    matrices = {}
    for i in range(relations):
        count = edges // relations + (i < edges % relations)
        row, col = rng.integers(0, max(nodes, 1), (2, count))
        value = rng.random(count) + 0.1 if weighted else np.ones(count)
        matrices[f"r{i}"] = sp.csr_array((value, (row, col)), shape=(nodes, nodes))
    return RelationGraph.from_scipy(matrices, num_nodes=nodes, **options)


GRAPHS = {
    "plain": {},
    "weighted": {"weighted": True},
    "row normalised": {"normalize": "row"},
    "as in DiffMG": {"normalize": "row", "self_loops": True, "identity": True, "zero": True},
    "symmetric": {"normalize": "sym", "weighted": True, "identity": True},
    "loops only": {"self_loops": True},
}


def random_weights(graph, p, q, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(graph.num_relations, p, q, generator=generator, dtype=dtype)


def random_state(nodes, p, features, dtype=torch.float64, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(nodes, p, features, generator=generator, dtype=torch.float64).to(dtype)


def sum_dtype(dtype):
    return torch.float64 if dtype == torch.float64 else torch.float32


# ---------------------------------------------------------------------------- values and gradients


def check_edge(graph, p, q, features, dtype):
    """One edge: the value and the gradients of h and w against the dense formula."""
    h = random_state(graph.num_nodes, p, features, dtype).requires_grad_()
    w = random_weights(graph, p, q, dtype=sum_dtype(dtype)).requires_grad_()
    h_ref, w_ref = (t.detach().double().requires_grad_() for t in (h, w))
    out, want = propagate(graph, h, w), formula(dense(graph), h_ref, w_ref)
    assert out.dtype == dtype
    assert_close(out.detach(), want.detach(), dtype)
    grad = random_state(graph.num_nodes, q, features, dtype, seed=2)
    got = torch.autograd.grad(out, [h, w], grad)
    for a, b in zip(got, torch.autograd.grad(want, [h_ref, w_ref], grad.double()), strict=True):
        assert_close(a, b, dtype)


@settings(max_examples=60, deadline=None)
@given(
    nodes=st.integers(1, 40),
    edges=st.integers(0, 150),
    relations=st.integers(1, 6),
    kind=st.sampled_from(list(GRAPHS)),
    p=st.integers(1, 9),
    q=st.integers(1, 9),
    features=st.integers(1, 70),
    dtype=st.sampled_from(list(TOLERANCE)),
    seed=st.integers(0, 99),
)
@example(1, 1, 1, "as in DiffMG", 1, 1, 1, torch.float32, 0)
@example(30, 90, 3, "as in DiffMG", 2, 2, 64, torch.float32, 0)
@example(30, 90, 3, "as in DiffMG", 2, 1, 32, torch.float32, 0)
@example(30, 90, 3, "as in DiffMG", 1, 2, 16, torch.float32, 0)
@example(30, 90, 3, "as in DiffMG", 2, 2, 128, torch.float32, 0)
@example(30, 90, 3, "as in DiffMG", 4, 4, 64, torch.float32, 0)
@example(30, 90, 3, "as in DiffMG", 1, 9, 64, torch.float32, 0)
def test_formula(nodes, edges, relations, kind, p, q, features, dtype, seed):
    options = {"dtype": sum_dtype(dtype), "seed": seed, **GRAPHS[kind]}
    check_edge(random_graph(nodes, edges, relations, **options), p, q, features, dtype)


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize(
    ("nodes", "edges", "relations", "p", "q", "features"),
    [
        pytest.param(1, 0, 1, 2, 2, 8, id="one node"),
        pytest.param(9, 0, 2, 2, 3, 8, id="no edges"),
        pytest.param(9, 30, 1, 2, 3, 8, id="one relation"),
        pytest.param(9, 900, 60, 3, 2, 8, id="60 relations"),
        pytest.param(9, 30, 3, 2, 3, 1, id="F = 1"),
        pytest.param(9, 30, 3, 2, 3, 257, id="F = 257"),
        pytest.param(9, 30, 3, 1, 5, 16, id="P = 1"),
        pytest.param(9, 30, 3, 5, 1, 16, id="Q = 1"),
        pytest.param(9, 30, 3, 33, 1, 16, id="P = 33"),
    ],
)
def test_degenerate(nodes, edges, relations, p, q, features, dtype):
    graph = random_graph(nodes, edges, relations, dtype=sum_dtype(dtype), **GRAPHS["as in DiffMG"])
    check_edge(graph, p, q, features, dtype)


@pytest.mark.parametrize("shape", [(0, 2, 8), (5, 2, 0)])
def test_nothing_to_do(shape):
    graph = random_graph(shape[0], 3 * bool(shape[0]), identity=True)
    h, w = torch.zeros(shape, requires_grad=True), torch.ones(4, 2, 3, requires_grad=True)
    out = propagate(graph, h, w)
    out.sum().backward()
    assert out.shape == (shape[0], 3, shape[2])
    assert h.grad.shape == h.shape
    assert (w.grad == 0).all()


def test_all_edges_on_one_row():
    column = np.arange(2000) % 50
    hub = sp.csr_array((np.ones(2000), (np.zeros(2000, int), column)), shape=(50, 50))
    for matrix in (hub, hub.T):
        graph = RelationGraph.from_scipy({"hub": matrix}, normalize="row")
        check_edge(graph, 2, 3, 20, torch.float32)


def test_only_identity_and_zero():
    graph = RelationGraph.from_edge_index({}, 5, identity=True, zero=True)
    h, w = random_state(5, 2, 4, torch.float32), torch.randn(2, 2, 3)
    assert_close(propagate(graph, h, w), torch.einsum("npf,pq->nqf", h, w[0]), torch.float32)


def test_int64_indices(monkeypatch):
    monkeypatch.setattr(segments, "INT32_LIMIT", 1)
    graph = random_graph(30, 90, **GRAPHS["as in DiffMG"])
    assert graph.index_dtype == torch.int64
    check_edge(graph, 2, 3, 33, torch.float32)


def test_noncontiguous_and_expanded():
    graph = random_graph(12, 40, **GRAPHS["as in DiffMG"])
    a = dense(graph)
    h = torch.randn(8, 12, 3).permute(1, 2, 0)
    w = torch.randn(2, 3, graph.num_relations).permute(2, 1, 0)
    assert_close(propagate(graph, h, w), formula(a, h, w), torch.float32)
    h = torch.randn(12, 1, 1).expand(12, 3, 8)
    w = torch.randn(1, 1, 1).expand(graph.num_relations, 3, 2)
    assert_close(propagate(graph, h, w), formula(a, h, w), torch.float32)
    out = propagate(graph, h.clone().requires_grad_(), w)
    (grad,) = torch.autograd.grad(out.sum(), [out.grad_fn.next_functions[0][0].variable])
    want = formula(a.transpose(1, 2), torch.ones(12, 2, 8), w.transpose(1, 2))
    assert_close(grad, want, torch.float32)


# ---------------------------------------------------------------------------- whole DAGs


@st.composite
def dags(draw, most=5):
    """Any DAG on up to `most` nodes with one source and one sink."""
    last = draw(st.integers(1, most - 1))
    edges = {(j, j + 1) for j in range(last)}
    for j in range(last + 1):
        for k in range(j + 2, last + 1):
            if draw(st.booleans()):
                edges.add((j, k))
    for edge in sorted(edges):
        rest = edges - {edge}
        tails, heads = {j for j, _ in rest}, {k for _, k in rest}
        if edge[0] in tails and edge[1] in heads and draw(st.booleans()):
            edges = rest
    return Dag(draw(st.permutations(sorted(edges))))


@settings(max_examples=60, deadline=None)
@given(
    dag=dags(),
    kind=st.sampled_from(list(GRAPHS)),
    dtype=st.sampled_from(list(TOLERANCE)),
    features=st.sampled_from([1, 5, 16, 40]),
    edges=st.sampled_from([50, 1000]),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_dag(dag, kind, dtype, features, edges, seed, data):
    """All states and gradients, whatever the ranks and the states that are used.

    With many edges and unequal ranks many DAG edges are mixed first, with few edges hardly any.
    """
    relations = data.draw(st.integers(3, 6))
    graph = random_graph(15, edges, relations, dtype=sum_dtype(dtype), seed=seed, **GRAPHS[kind])
    a = dense(graph)
    rank = {node: data.draw(st.integers(1, 5)) for node in dag.nodes}
    weights = {
        (j, k): random_weights(graph, rank[j], rank[k], i, sum_dtype(dtype)).requires_grad_()
        for i, (j, k) in enumerate(dag.edges)
    }
    h = random_state(15, rank[dag.source], features, dtype).requires_grad_()
    used = data.draw(st.sets(st.sampled_from(dag.nodes[1:]), min_size=1))
    some = st.lists(st.sampled_from(graph.relation_names), unique=True)
    choices = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(dag.edges, some)))
    grads = {k: random_state(15, rank[k], features, dtype, seed=i) for i, k in enumerate(used)}

    def results(states, h, weights, grads):
        """The states, and the gradients of h and of the weights."""
        gradients = torch.autograd.grad(
            [states[k] for k in grads], [h, *weights.values()], grads.values(),
            allow_unused=True, materialize_grads=True,
        )  # fmt: skip
        return [*(states[k].detach() for k in dag.nodes), *gradients]

    def wanted(change):
        """The same by the formula, with all numbers changed."""
        h_ref = change(h.detach().double()).requires_grad_()
        refs = {edge: change(w.detach().double()).requires_grad_() for edge, w in weights.items()}
        states = dag_formula(a, dag, h_ref, only_chosen(graph, refs, choices))
        return results(states, h_ref, refs, {k: change(g.double()) for k, g in grads.items()})

    states = propagate_dag(graph, dag, h, weights, choices=choices, return_states=True)
    got = results(states, h, weights, grads)
    for x, y, size in zip(got, wanted(torch.clone), wanted(torch.abs), strict=True):
        assert_close(x, y, dtype, size)
    got = got[len(dag.nodes) :]
    by_edge = dict(zip(weights, got[1:], strict=True))
    for dw, nonzero in zip(got[1:], only_chosen(graph, by_edge, choices).values(), strict=True):
        assert torch.equal(dw, nonzero)


@pytest.mark.parametrize(
    "names",
    [["r0"], ["r0", "r2"], ["r1", "empty"], ["identity"], ["empty", "zero"], []],
    ids=lambda names: ", ".join(names) or "nothing",
)
@pytest.mark.parametrize("density", [0, 0.02, 0.7])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_choices(monkeypatch, names, density, index):
    """One edge uses some relations, the other all; what is not used may be anything."""
    monkeypatch.setattr(segments, "INT32_LIMIT", 2**31 if index == torch.int32 else 1)
    rng = np.random.default_rng(3)
    matrices = {
        f"r{i}": sp.csr_array(rng.random((40, 40)) < density, dtype=float) for i in range(5)
    }
    matrices["empty"] = sp.csr_array((40, 40))
    graph = RelationGraph.from_scipy(matrices, **GRAPHS["as in DiffMG"], dtype=torch.float64)
    assert graph.index_dtype == index
    assert density == 0 or graph.forward.seg_val is not None
    dag, choices = Dag.path(2), {(0, 1): names}
    weights = {(0, 1): random_weights(graph, 2, 3), (1, 2): random_weights(graph, 3, 1)}
    used = only_chosen(graph, weights, choices)
    weights[0, 1] = torch.where(used[0, 1] == 0, torch.nan, weights[0, 1])
    h = random_state(40, 2, 9).requires_grad_()
    weights = {edge: w.requires_grad_() for edge, w in weights.items()}
    used = {edge: w.detach().requires_grad_() for edge, w in used.items()}
    out = propagate_dag(graph, dag, h, weights, choices=choices)
    want = dag_formula(dense(graph), dag, h, used)[2]
    assert_close(out.detach(), want.detach(), torch.float64)
    got = torch.autograd.grad(out.sum(), [h, *weights.values()])
    expected = torch.autograd.grad(want.sum(), [h, *used.values()])
    unused = torch.tensor([name not in names for name in graph.relation_names])
    assert (got[1][unused] == 0).all()
    expected[1][unused] = 0
    for a, b in zip(got, expected, strict=True):
        assert_close(a, b, torch.float64)


def test_choices_of_everything_give_the_same_bits():
    *problem, grad = sizable_problem()
    graph, dag, _, _ = problem
    want = run_problem(*problem, grad)
    for choices in [{}, dict.fromkeys(dag.edges, graph.relation_names[::-1])]:
        assert all(map(torch.equal, want, run_problem(*problem, grad, choices)))


def test_dag_interface():
    graph = random_graph(10, 30, identity=True)
    dag = Dag([("x", "a"), ("a", "y"), ("x", "y")])
    weights = {
        ("x", "a"): torch.randn(4, 1, 3),
        ("a", "y"): torch.randn(4, 3, 2),
        ("x", "y"): torch.randn(4, 1, 2),
    }
    h = torch.randn(10, 7)
    states = propagate_dag(graph, dag, h, weights, return_states=True)
    assert {node: tuple(s.shape) for node, s in states.items()} == {
        "x": (10, 1, 7), "a": (10, 3, 7), "y": (10, 2, 7)}  # fmt: skip
    assert torch.equal(propagate_dag(graph, dag, h, weights), states["y"])
    by_hand = propagate(graph, states["a"], weights["a", "y"]) + propagate(
        graph, states["x"], weights["x", "y"]
    )
    assert_close(states["y"], by_hand, torch.float32)


# ---------------------------------------------------------------------------- edge values


@pytest.mark.parametrize("edges", [40, 1000])
@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize(
    "choices",
    [
        None,
        {(0, 1): ["r1"], (0, 2): ["r1", "identity"], (1, 2): ["r0"]},
        {(0, 1): ["r2"], (0, 2): [], (1, 2): ["r2"]},
    ],
    ids=["all", "few", "one"],
)
def test_gradient_of_edge_values(dtype, edges, choices):
    graph = random_graph(12, edges, dtype=sum_dtype(dtype), **GRAPHS["as in DiffMG"])
    values = (torch.rand(graph.num_edges, dtype=sum_dtype(dtype)) + 0.1).requires_grad_()
    dag, rank = Dag.complete(2), [2, 5, 1]
    weights = {(j, k): random_weights(graph, rank[j], rank[k], 3 * j + k) for j, k in dag.edges}
    h = random_state(12, 2, 9, dtype)
    grad = random_state(12, 1, 9, dtype, seed=5)
    learned = graph.with_values(values)
    out = propagate_dag(learned, dag, h, weights, choices=choices)
    (got,) = torch.autograd.grad(out, [values], grad)
    weights = only_chosen(graph, weights, choices)

    forward = learned.forward
    seg = forward.edge_seg()
    at = (forward.seg_rel[seg].long(), forward.seg_row()[seg], forward.col.long())
    frozen = graph.with_values(torch.zeros_like(values).detach())
    reference = values.detach().double().requires_grad_()
    a = dense(frozen).index_put(at, reference, accumulate=True)
    want = dag_formula(a, dag, h, weights)[dag.sink]
    assert_close(out.detach(), want.detach(), dtype)
    expected = torch.autograd.grad(want, [reference], grad.double())[0]
    assert_close(got, expected, dtype)
    assert (got[expected == 0] == 0).all()


# ---------------------------------------------------------------------------- torch's operators


def small_problem(kind="as in DiffMG", dtype=torch.float64, p=2, q=3, features=5):
    graph = random_graph(7, 20, 2, dtype=dtype, **GRAPHS[kind])
    h = random_state(7, p, features, dtype).requires_grad_()
    w = random_weights(graph, p, q, dtype=dtype).requires_grad_()
    return graph, h, w


@pytest.mark.parametrize("kind", list(GRAPHS))
def test_gradcheck(kind):
    graph, h, w = small_problem(kind)
    values = graph.values().clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda h, w, v: propagate(graph.with_values(v), h, w), (h, w, values)
    )
    dag = Dag.complete(2)
    weights = [random_weights(graph, 2, 2, i).requires_grad_() for i in range(3)]
    assert torch.autograd.gradcheck(
        lambda h, *w: propagate_dag(graph, dag, h, dict(zip(dag.edges, w, strict=True))),
        (h, *weights),
    )
    choices = {(0, 1): ["r0"], (1, 2): ["r0"], (0, 2): []}
    assert torch.autograd.gradcheck(
        lambda h, v, *w: propagate_dag(
            graph.with_values(v), dag, h, dict(zip(dag.edges, w, strict=True)), choices=choices
        ),
        (h, values, *weights),
    )


def test_double_backward_is_refused():
    graph, h, w = small_problem()
    (grad,) = torch.autograd.grad(propagate(graph, h, w).square().sum(), [h], create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivative"):
        grad.sum().backward()


def forward_mode(f, x):
    with forward_ad.dual_level():
        return f(forward_ad.make_dual(x, x))


@pytest.mark.parametrize("place", [0, 1, 2], ids=["h", "w", "values"])
@pytest.mark.parametrize(
    "transform",
    [
        lambda f, x: torch.func.jvp(f, (x,), (x,)),
        lambda f, x: torch.func.grad(lambda x: f(x).sum())(x),
        lambda f, x: torch.func.jacrev(f)(x),
        lambda f, x: torch.func.jacfwd(f)(x),
        lambda f, x: torch.func.vmap(f)(torch.stack([x, x])),
        forward_mode,
    ],
    ids=["jvp", "grad", "jacrev", "jacfwd", "vmap", "forward mode"],
)
def test_forward_mode_and_torch_func_are_refused(transform, place):
    graph, h, w = small_problem()
    given = [h.detach(), w.detach(), graph.values()]

    def f(x):
        h, w, values = (x if k == place else given[k] for k in range(3))
        return propagate(graph.with_values(values), h, w)

    with pytest.raises(NotImplementedError, match="neither a forward-mode derivative"):
        transform(f, given[place])


def test_a_tangent_in_the_backward_pass_is_refused():
    graph, h, w = small_problem()
    out = propagate(graph, h, w.detach())
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="gradient of propagate"):
        out.backward(forward_ad.make_dual(torch.ones_like(out), torch.ones_like(out)))


class Recorder(torch.utils._python_dispatch.TorchDispatchMode):
    """Keeps the arguments with which our operators are called."""

    def __init__(self):
        super().__init__()
        self.calls = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "tensus_tn":
            self.calls[func] = args
        return func(*args, **(kwargs or {}))


def operator_calls(graph, h, w, names=None):
    """The calls of one link that uses the relations `names`, or all."""
    dag = Dag.path(1)
    choices = None if names is None else dict.fromkeys(dag.edges, names)
    with Recorder() as recorder:
        out = propagate_dag(graph, dag, h, dict.fromkeys(dag.edges, w), choices=choices)
        out.square().sum().backward()
    return {str(op): (op, args) for op, args in recorder.calls.items()}


@pytest.mark.parametrize("kind", ["weighted", "as in DiffMG"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("names", [None, ["r1"]])
def test_opcheck(kind, dtype, names):
    graph = random_graph(7, 20, 2, **GRAPHS[kind])
    values = graph.values().clone().requires_grad_()
    h = random_state(7, 2, 5, dtype).requires_grad_()
    w = random_weights(graph, 2, 3, dtype=torch.float32).requires_grad_()
    calls = operator_calls(graph.with_values(values), h, w, names)
    assert set(calls) == {"tensus_tn.propagate.default", "tensus_tn.propagate_backward.default"}
    op, args = calls["tensus_tn.propagate.default"]
    torch.library.opcheck(op, (h, w.reshape(-1), values, *args[3:]))
    op, args = calls["tensus_tn.propagate_backward.default"]
    torch.library.opcheck(op, tree_detach(args))


def tree_detach(args):
    return torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, args)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(dynamic):
    graph, h, w = small_problem(dtype=torch.float32)
    dag = Dag.complete(2)

    def loss(h, w):
        state = propagate(graph, h.sin(), w)
        weights = {(0, 1): w[:, :1], (1, 2): w.transpose(1, 2)[:, :, :1], (0, 2): w[:, :1, :1]}
        out = propagate_dag(graph, dag, state.sum(1), weights, choices={(0, 2): ["r1", "zero"]})
        return (out * 2).cos().sum()

    compiled = torch.compile(loss, fullgraph=True, dynamic=dynamic)
    for features in (5, 9):
        h = random_state(7, 2, features, torch.float32).requires_grad_()
        got, want = (torch.autograd.grad(f(h, w), [h, w]) for f in (compiled, loss))
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


def test_export():
    class Layer(torch.nn.Module):
        def __init__(self, graph, w):
            super().__init__()
            self.graph, self.w = graph, torch.nn.Parameter(w.detach())

        def forward(self, h):
            return propagate(self.graph, h, self.w.softmax(0)).relu()

    graph, h, w = small_problem(dtype=torch.float32)
    layer = Layer(graph, w)
    exported = torch.export.export(layer, (h.detach(),))
    assert "tensus_tn.propagate" in exported.graph_module.code
    torch.testing.assert_close(exported.module()(h), layer(h))


def test_autocast():
    """h keeps its type, whatever it is; the weights and the sums stay float32."""
    graph, h, w = small_problem(dtype=torch.float32)
    plain = propagate(graph, h, w)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(propagate(graph, h, w), plain)
        half = torch.nn.functional.linear(h, torch.eye(5))
        out = propagate(graph, half, w)
        args = [t.float() for t in (h, w)]
    assert half.dtype == out.dtype == torch.bfloat16
    assert_close(out.detach(), formula(dense(graph), half, args[1]).detach(), torch.bfloat16)
    out.float().sum().backward()
    assert h.grad.dtype == w.grad.dtype == torch.float32


def test_no_grad_and_partial_gradients():
    graph, h, w = small_problem()
    with torch.no_grad():
        assert not propagate(graph, h, w).requires_grad
    full = torch.autograd.grad(propagate(graph, h, w).square().sum(), [h, w])
    only_h = torch.autograd.grad(propagate(graph, h, w.detach()).square().sum(), [h])
    only_w = torch.autograd.grad(propagate(graph, h.detach(), w).square().sum(), [w])
    assert torch.equal(full[0], only_h[0])
    assert torch.equal(full[1], only_w[0])


def test_only_the_states_are_saved():
    graph = random_graph(50, 400, **GRAPHS["as in DiffMG"])
    structure = {t.data_ptr() for s in (graph.forward, graph.backward)
                 for t in vars(s).values() if t is not None} | {graph.loop.data_ptr()}  # fmt: skip
    dag = Dag.complete(3)
    weights = {e: torch.randn(graph.num_relations, 2, 2, requires_grad=True) for e in dag.edges}
    h = torch.randn(50, 2, 16, requires_grad=True)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        propagate_dag(graph, dag, h, weights)
    new = [t for t in saved if t.data_ptr() not in structure]
    assert sorted(t.numel() for t in new) == [6 * graph.num_relations * 4] + [h.numel()] * 4


# ---------------------------------------------------------------------------- threads and processes


def sizable_problem(rank=(1, 2, 3, 1)):
    """Large enough for many chunks and for states beyond the arena's threshold."""
    graph = random_graph(3000, 60_000, **GRAPHS["as in DiffMG"])
    dag = Dag.complete(3)
    weights = {}
    for j, k in dag.edges:
        w = random_weights(graph, rank[j], rank[k], j + 5 * k, torch.float32)
        weights[j, k] = w.requires_grad_()
    h = random_state(3000, rank[0], 64, torch.float32).requires_grad_()
    return graph, dag, h, weights, random_state(3000, rank[-1], 64, torch.float32, seed=3)


def run_problem(graph, dag, h, weights, grad, choices=None):
    out = propagate_dag(graph, dag, h, weights, choices=choices)
    return [out.detach(), *torch.autograd.grad(out, [h, *weights.values()], grad)]


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@native
@pytest.mark.parametrize("rank", [(1, 2, 3, 1), (1, 9, 9, 1)], ids=["gathered", "mixed first"])
@pytest.mark.parametrize("names", [None, ["r0", "r2"], ["r1"]])
def test_same_bits_for_any_number_of_threads(threads, rank, names):
    *problem, grad = sizable_problem(rank)
    graph, dag, _, _ = problem
    graph = graph.with_values(graph.values())  # learned ones would be copied as well
    problem = graph, *problem[1:], grad, names and dict.fromkeys(dag.edges, names)
    results = []
    for count in (1, 2, 3, 8, 2):
        threads(count)
        results.append(run_problem(*problem))
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))


def test_several_python_threads_at_once():
    problem = sizable_problem()
    want = run_problem(*problem)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for got in pool.map(lambda _: run_problem(*problem), range(8)):
            assert all(map(torch.equal, want, got))


def in_child(connection, problem):
    # numpy takes the sums: torch's own loops would wait for threads that a fork left behind.
    connection.send([t.numpy().sum(dtype=np.float64) for t in run_problem(*problem)])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_child_processes(method):
    problem = sizable_problem()
    want = [t.numpy().sum(dtype=np.float64) for t in run_problem(*problem)]
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads, on purpose
        child = context.Process(target=in_child, args=(theirs, problem))
        child.start()
    try:
        assert ours.poll(60), "the child did not answer"
        assert ours.recv() == want
    finally:
        child.kill()
        child.join()


def test_memory_is_not_shared_between_live_results():
    graph, dag, h, weights, _ = sizable_problem()
    with torch.no_grad():
        first = propagate_dag(graph, dag, h, weights, return_states=True)
        kept = {node: state.clone() for node, state in first.items()}
        for scale in (2.0, 3.0):
            propagate_dag(graph, dag, h * scale, weights)
    assert all(torch.equal(first[node], kept[node]) for node in dag.nodes)


# ---------------------------------------------------------------------------- backends


@native
@pytest.mark.parametrize(
    "isa", [name for name, runs in extension._C.isas().items() if runs] if extension._C else []
)
def test_every_instruction_set(isa):
    best = extension._C.isa()
    try:
        extension._C.use_isa(isa)
        assert extension._C.isa() == isa
        for dtype in TOLERANCE:
            graph = random_graph(40, 200, dtype=sum_dtype(dtype), **GRAPHS["as in DiffMG"])
            for p, q, features in [(2, 2, 64), (4, 8, 33), (3, 1, 7)]:
                check_edge(graph, p, q, features, dtype)
    finally:
        extension._C.use_isa(best)


@native
def test_unknown_instruction_set():
    with pytest.raises(ValueError, match="'mmx' is not built"):
        extension._C.use_isa("mmx")
    with pytest.raises(TypeError):
        extension._C.use_isa(3)


def test_schemas_agree():
    for name, schema in operators.SCHEMAS.items():
        op = getattr(torch.ops.tensus_tn, name).default
        assert str(op._schema) == f"tensus_tn::{name}{schema}"


@native
@pytest.mark.parametrize("kind", list(GRAPHS))
@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("names", [None, ["r1"], []])
def test_plain_pytorch_gives_the_same(kind, dtype, names):
    graph = random_graph(20, 80, dtype=sum_dtype(dtype), **GRAPHS[kind])
    values = graph.values().clone().requires_grad_()
    h = random_state(20, 2, 9, dtype).requires_grad_()
    w = random_weights(graph, 2, 3, dtype=sum_dtype(dtype)).requires_grad_()
    calls = operator_calls(graph.with_values(values), h, w, names)
    for name in operators.SCHEMAS:
        op, args = calls[f"tensus_tn.{name}.default"]
        args = tree_detach(args)
        for a, b in zip(op(*args), getattr(reference, name)(*args), strict=True):
            assert_close(a, b, dtype)


REFERENCE_SCRIPT = """
import torch, warnings
from tensus_tn.propagation.relation_graph import RelationGraph
from tensus_tn.propagation.functional import propagate
warnings.simplefilter("error")
from tensus_tn.propagation.extension import show_config
assert show_config()["backend"] == "reference"
index = torch.tensor([[0, 1, 2], [1, 2, 2]])
graph = RelationGraph.from_edge_index({"A": index}, 3, identity=True)
h = torch.randn(3, 2, 4, dtype=torch.float64, requires_grad=True)
w = torch.randn(2, 2, 3, dtype=torch.float64, requires_grad=True)
v = torch.rand(3, dtype=torch.float64, requires_grad=True)
assert torch.autograd.gradcheck(lambda h, w, v: propagate(graph.with_values(v), h, w), (h, w, v))
compiled = torch.compile(propagate, fullgraph=True, backend="eager")
assert torch.allclose(compiled(graph.to(torch.float64), h, w), propagate(graph, h, w))
want = propagate(graph, h.float(), w.float())
with torch.autocast("cpu", dtype=torch.bfloat16):
    assert torch.equal(propagate(graph, h.float(), w.float()), want)
print("fine")
"""


def test_forced_reference_backend():
    environment = {**os.environ, "TENSUS_BACKEND": "reference"}
    run = subprocess.run([sys.executable, "-c", REFERENCE_SCRIPT], env=environment, text=True,
                         capture_output=True, timeout=300)  # fmt: skip
    assert run.stdout.endswith("fine\n"), run.stderr


# ---------------------------------------------------------------------------- bad input


def test_errors_name_the_culprit():
    graph = random_graph(5, 10, identity=True)  # 4 relations
    h, w = torch.randn(5, 2, 3), torch.randn(4, 2, 3)
    for bad_h, error, text in [
        (torch.randn(6, 2, 3), ValueError, r"N = 5, got \(6, 2, 3\)"),
        (torch.randn(5, 3), ValueError, r"shape \(N, P, F\)"),
        (torch.randn(5, 0, 3), ValueError, r"got \(5, 0, 3\)"),
        (h.half(), TypeError, "float32, float64 or bfloat16 .* got torch.float16"),
        (h.long(), TypeError, "got torch.int64"),
        (h.numpy(), TypeError, "must be a tensor, got ndarray"),
        (h.to("meta"), ValueError, "h is on meta, the graph is on cpu"),
    ]:
        with pytest.raises(error, match=text):
            propagate(graph, bad_h, w)
    for bad_w, error, text in [
        (torch.randn(3, 2, 3), ValueError, r"\(4, 2, 'any'\), got \(3, 2, 3\)"),
        (torch.randn(4, 1, 3), ValueError, r"got \(4, 1, 3\)"),
        (torch.randn(4, 2), ValueError, r"got \(4, 2\)"),
        (torch.randn(4, 2, 0), ValueError, r"got \(4, 2, 0\)"),
        (w.long(), TypeError, "floating-point tensor, got torch.int64"),
        (None, TypeError, "must be a tensor, got NoneType"),
        (w.to("meta"), ValueError, "w is on meta"),
    ]:
        with pytest.raises(error, match=text):
            propagate(graph, h, bad_w)
    with pytest.raises(TypeError, match="must be a RelationGraph, got dict"):
        propagate({}, h, w)


def test_dag_errors_name_the_culprit():
    graph, dag, h = random_graph(5, 10), Dag.path(2), torch.randn(5, 3)
    first, second = torch.randn(3, 1, 2), torch.randn(3, 2, 1)
    for weights, text in [
        ({(0, 1): first}, r"no weights for the edges \[\(1, 2\)\]"),
        ({(0, 1): first, (1, 2): second, (0, 2): first}, r"does not have: \[\(0, 2\)\]"),
        ({(0, 1): first, (1, 2): first}, r"weights\[\(1, 2\)\] must have shape .* \(3, 2, 'any'\)"),
    ]:
        with pytest.raises(ValueError, match=text):
            propagate_dag(graph, dag, h, weights)


def test_wrong_choices_are_named():
    graph, dag, h = random_graph(5, 10), Dag.path(2), torch.randn(5, 3)
    weights = dict.fromkeys(dag.edges, torch.randn(3, 1, 1))
    for choices, error, text in [
        ({(0, 2): ["r0"]}, ValueError, r"does not have: \[\(0, 2\)\]"),
        ({(0, 1): ["r0", "r9"]}, ValueError, r"choices\[\(0, 1\)\]: \['r9'\] are not among \['r0'"),
        ({(0, 1): [0]}, ValueError, r"\[0\] are not among"),
        ({(1, 2): "r0"}, TypeError, "must be names of relations, got the text 'r0'"),
    ]:
        with pytest.raises(error, match=text):
            propagate_dag(graph, dag, h, weights, choices=choices)
    w = random_weights(graph, 1, 1, dtype=torch.float32)
    op, args = operator_calls(graph, h[:, None].requires_grad_(), w, ["r0"])[
        "tensus_tn.propagate.default"
    ]
    for chosen, text in [([1, 0], "chosen must have 3 entries, got 2"), ([1, 0, 2], "0 or 1")]:
        with pytest.raises(RuntimeError, match=text):
            op(*tree_detach(args)[:-1], chosen)


def corrupt(value, rng):
    """A likely disaster in the place of a sound argument."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, list) and value and isinstance(value[0], int):
        bad = list(value)
        bad[rng.randrange(len(bad))] = rng.choice([-1, 0, 1, 2, 7, 2**31, 2**40, -(2**40), 2**62])
        return rng.choice([bad, bad[:-1], [*bad, 1], []])
    if isinstance(value, list):
        if not value or rng.random() < 0.3:
            return rng.choice([value[:-1], [*value, torch.zeros(3)], []])
        at = rng.randrange(len(value))
        return [*value[:at], corrupt(value[at], rng), *value[at + 1 :]]
    if value is None:
        return rng.choice([torch.zeros(3), torch.zeros(0), torch.zeros(2, 2)])
    choice = rng.randrange(8)
    if choice == 0:
        return value[: value.shape[0] // 2]
    if choice == 1:
        return torch.cat([value, value])
    if choice == 2:
        return value.unsqueeze(0)
    if choice == 3:
        return value.to(
            rng.choice([torch.int32, torch.int64, torch.float64, torch.float16, torch.bool])
        )
    if choice == 4:
        return torch.stack([value, value], -1)[..., 0]
    if choice == 5:
        return value.to("meta")
    bad = value.clone()
    if bad.numel():
        at = rng.randrange(bad.numel())
        bad.view(-1)[at] = rng.choice([-1, 1, 5, 127, 2**31 - 1, -(2**31)])
    return bad


FUZZ_SCRIPT = """
import random, sys
sys.path.insert(0, {root!r})
import torch
from tests.propagation.test_functional import *
from tests.propagation.test_functional import corrupt
rng = random.Random({seed})
refused = ran = 0
for kind in GRAPHS:
    graph = random_graph(9, 30, 2, **GRAPHS[kind])
    graph = graph.with_values(graph.values().clone().requires_grad_())
    h, w = random_state(9, 2, 5, torch.float32), random_weights(graph, 2, 3, dtype=torch.float32)
    h, w = h.requires_grad_(), w.requires_grad_()
    calls = [operator_calls(graph, h, w, names) for names in (None, ["r1"])]
    for op, args in (call for some in calls for call in some.values()):
        args = tree_detach(args)
        for _ in range(400):
            bad = list(args)
            for _ in range(rng.choice([1, 1, 2])):
                at = rng.randrange(len(bad))
                bad[at] = corrupt(bad[at], rng)
            try:
                op(*bad)
                ran += 1
            except (RuntimeError, ValueError, TypeError, NotImplementedError, IndexError):
                refused += 1
print("refused", refused, "ran", ran)
"""


@native
def test_inconsistent_tensors_never_crash():
    """In a child, so that a crash is a failure here and not the end of the run."""
    script = FUZZ_SCRIPT.format(root=str(Path(__file__).parents[2]), seed=random.Random(3).random())
    run = subprocess.run(
        [sys.executable, "-c", script], text=True, capture_output=True, timeout=300
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert int(run.stdout.split()[1]) > 3000, run.stdout
