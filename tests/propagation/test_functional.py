"""propagate and propagate_dag against the dense formula."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tensus_tn.dag import Dag
from tensus_tn.propagation import functional, segments
from tensus_tn.propagation.arguments import Arguments
from tensus_tn.propagation.functional import propagate, propagate_dag
from tensus_tn.propagation.relation_graph import RelationGraph
from tests.propagation.problems import (
    GRAPHS,
    TOLERANCE,
    assert_close,
    check_edge,
    dag_formula,
    dense,
    formula,
    native,
    only_chosen,
    operator_calls,
    random_graph,
    random_state,
    random_weights,
    run_problem,
    sizable_problem,
    sum_dtype,
    tree_detach,
)


@settings(max_examples=60)
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
        graph = RelationGraph.from_scipy({"hub": matrix}, normalize="row", dtype=torch.float32)
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


@settings(max_examples=60)
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


def test_choices_among_no_relations_have_a_gradient():
    graph, dag, h = RelationGraph.from_edge_index({}, 2), Dag.path(1), torch.ones(2, 3)
    h.requires_grad_()
    propagate_dag(graph, dag, h, {(0, 1): torch.ones(0, 1, 1)}, choices={}).sum().backward()
    assert not h.grad.any()


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


def test_lost_digits_are_said_once(monkeypatch):
    monkeypatch.setattr(functional, "_warned", False)
    matrix, h, w = sp.eye_array(3, format="csr"), torch.ones(3, 1, 2), torch.ones(1, 1, 1)
    whole, thirds = (RelationGraph.from_scipy({"a": matrix / size}) for size in (2, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        propagate(whole, h, w)  # a half is exact in both types
        propagate(thirds, h.double(), w)
        propagate(thirds.to(torch.float32), h, w)
    with pytest.warns(UserWarning, match=r"rounded to float32 .* dtype=torch\.float32") as caught:
        propagate(thirds, h, w)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        propagate(thirds, h, w)


# ---------------------------------------------------------------------------- bad input


def test_errors_name_the_culprit():
    graph = random_graph(5, 10, identity=True)  # 4 relations
    h, w = torch.randn(5, 2, 3), torch.randn(4, 2, 3)
    for bad_h, error, text in [
        (torch.randn(6, 2, 3), ValueError, r"N = 5, got \(6, 2, 3\)"),
        (torch.randn(5, 3), ValueError, r"shape \(N, P, F\)"),
        (torch.randn(5, 0, 3), ValueError, r"got \(5, 0, 3\)"),
        (h.int(), TypeError, "float32, float64, bfloat16 or float16, got torch.int32"),
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
        given = Arguments(*tree_detach(args))
        with pytest.raises(RuntimeError, match=text):
            op(*given._replace(chosen=chosen))


# ---------------------------------------------------------------------------- halves, and long sums


@native
def test_every_half_survives():
    """A step over the identity alone: all numbers, those below the normal ones and infinity too."""
    every = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.float16)
    graph = random_graph(1 << 10, 0, 0, identity=True)
    out = propagate(graph, every.view(1 << 10, 1, 64), torch.ones(1, 1, 1)).flatten()
    numbers = ~every.isnan()
    assert torch.equal(out[numbers], every[numbers])
    assert out[~numbers].isnan().all()


@native
@pytest.mark.parametrize("features", [1, 7, 64])
def test_halves_are_rounded_as_torch_rounds_them(features):
    generator = torch.Generator().manual_seed(features)
    h = (10 ** torch.empty(500, 1, features).uniform_(-6, 4.9, generator=generator)).half()
    graph = random_graph(500, 0, 0, identity=True)
    for w in (0.3333, -1.7, 3e-5, 9.0):
        out = propagate(graph, h, torch.full((1, 1, 1), w))
        assert torch.equal(out, (h.float() * w).half())


@native
@pytest.mark.parametrize("kind", list(GRAPHS))
def test_halves(kind):
    graph = random_graph(40, 120, 3, seed=3, dtype=torch.float32, **GRAPHS[kind])
    dag = Dag.complete(3)
    h = torch.randn(40, 2, 9).half().requires_grad_()
    weights = {
        edge: (0.2 * torch.randn(graph.num_relations, 2, 2)).requires_grad_() for edge in dag.edges
    }
    out = propagate_dag(graph, dag, h, weights)
    wide = propagate_dag(graph, dag, h.float(), weights)
    torch.testing.assert_close(out.float(), wide, rtol=5e-3, atol=5e-3)
    grad = torch.randn_like(wide)
    variables = [h, *weights.values()]
    got = torch.autograd.grad(out, variables, grad.half())
    for a, b in zip(got, torch.autograd.grad(wide, variables, grad), strict=True):
        assert (a.float() - b.float()).abs().max() <= 1e-2 * (1 + b.float().abs().max())


@native
@pytest.mark.parametrize(("edges", "value"), [(1_000_000, 1.0), (5_000_000, 0.1)])
def test_a_hub_of_millions_of_edges_keeps_its_digits(edges, value):
    """One sum after the other would be some percent off; by parts, and parts of parts, it is not."""
    index = torch.stack([torch.arange(1, edges + 1), torch.zeros(edges, dtype=torch.int64)])
    graph = RelationGraph.from_edge_index({"A": index}, edges + 1)
    graph = graph if value == 1 else graph.with_values(torch.full((edges,), value))
    out = propagate(graph, torch.full((edges + 1, 1, 1), 0.7), torch.ones(1, 1, 1))
    assert abs(out[0].item() / (edges * 0.7 * value) - 1) < 3e-5
