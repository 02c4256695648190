"""The derivatives of propagate and propagate_dag: of h, of the weights and of the edge values."""

import functools

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils import _pytree as pytree

from tensus_tn.dag import Dag
from tensus_tn.propagation.functional import propagate, propagate_dag
from tests.propagation.problems import (
    GRAPHS,
    TOLERANCE,
    assert_close,
    dag_formula,
    dense,
    only_chosen,
    random_graph,
    random_state,
    random_weights,
    small_problem,
    sum_dtype,
)


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


CHOICES = {(0, 1): ["r0"], (1, 2): ["r0"], (0, 2): []}


def tiny_problem(kind="as in DiffMG", choices=None):
    """A function of h, the weights of three links and the edge values, and its arguments."""
    graph, dag, rank = (
        random_graph(4, 6, 2, dtype=torch.float64, **GRAPHS[kind]),
        Dag.complete(2),
        [2, 1, 2],
    )
    h = random_state(4, 2, 1).requires_grad_()
    weights = [
        random_weights(graph, rank[j], rank[k], j + k).requires_grad_() for j, k in dag.edges
    ]
    values = graph.values().clone().requires_grad_()

    def f(h, values, *weights):
        links = dict(zip(dag.edges, weights, strict=True))
        learned = graph if values is None else graph.with_values(values)
        return propagate_dag(learned, dag, h, links, choices=choices)

    return f, (h, values, *weights)


@pytest.mark.parametrize("choices", [None, CHOICES], ids=["all", "few"])
@pytest.mark.parametrize("kind", list(GRAPHS))
def test_first_and_second_derivatives(kind, choices):
    f, (h, values, *weights) = tiny_problem(kind, choices)
    f_of_weights = functools.partial(f, h.detach(), None)
    for function, arguments in [(f, (h, values, *weights)), (f_of_weights, weights)]:
        assert torch.autograd.gradcheck(function, arguments, check_forward_ad=True, fast_mode=True)
        assert torch.autograd.gradgradcheck(
            function, arguments, check_fwd_over_rev=True, fast_mode=True
        )


def dense_problem():
    """The function of `tiny_problem` by the dense formula."""
    graph = random_graph(4, 6, 2, dtype=torch.float64, **GRAPHS["as in DiffMG"])
    dag, forward = Dag.complete(2), graph.forward
    seg = forward.edge_seg()
    at = (forward.seg_rel[seg].long(), forward.seg_row()[seg], forward.col.long())
    loops = dense(graph.with_values(torch.zeros_like(graph.values())))

    def f(h, values, *weights):
        a = loops.index_put(at, values, accumulate=True)
        return dag_formula(a, dag, h, dict(zip(dag.edges, weights, strict=True)))[2]

    return f


@pytest.mark.parametrize(
    "transform",
    [
        lambda f, places: torch.func.grad(f, places),
        lambda f, places: torch.func.hessian(f, places),
        lambda f, places: torch.func.jacrev(torch.func.jacrev(f, places), places),
        lambda f, places: torch.func.jacfwd(torch.func.jacfwd(f, places), places),
        lambda f, places: torch.func.jacrev(torch.func.jacfwd(f, places), places),
    ],
    ids=["grad", "hessian", "reverse twice", "forward twice", "reverse over forward"],
)
def test_transforms_of_torch_func(transform):
    """All derivatives and mixed ones, in h, the values and the weights of one of the links."""
    f, arguments = tiny_problem()
    arguments, places = [x.detach() for x in arguments], (0, 1, 2)
    got, want = (
        transform(lambda *x, f=f: f(*x).sin().sum(), places)(*arguments)
        for f in (f, dense_problem())
    )
    for x, y in zip(*map(pytree.tree_leaves, (got, want)), strict=True):
        torch.testing.assert_close(x, y)


def test_third_derivative():
    def third(f):
        def along(x):  # the second derivative along x, differentiated once more
            return torch.func.jvp(lambda h: torch.func.jvp(f, (h,), (x,))[1], (x,), (x,))[1]

        return along

    f, (h, values, *weights) = tiny_problem()
    rest = [x.detach() for x in (values, *weights)]
    got, want = (
        torch.func.grad(third(lambda h, f=f: f(h, *rest).sin().sum()))(h.detach())
        for f in (f, dense_problem())
    )
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("mapped", [(0,), (1,), (2,), (0, 3), (0, 1, 2, 3, 4)])
def test_vmap_is_a_loop(mapped, order):
    """Over h (0), the values (1) and the weights of links (2, 3, 4); the batch is the last axis."""
    f, arguments = tiny_problem()
    batch = [
        torch.stack([x, -x, x.sin()], -1).detach() if k in mapped else x.detach()
        for k, x in enumerate(arguments)
    ]
    function = f if order == 0 else torch.func.grad(lambda *x: f(*x).sin().sum(), tuple(range(5)))
    dims = tuple(-1 if k in mapped else None for k in range(5))
    got = torch.func.vmap(function, dims)(*batch)
    one_by_one = [
        function(*(x[..., b] if k in mapped else x for k, x in enumerate(batch))) for b in range(3)
    ]
    want = pytree.tree_map(lambda *x: torch.stack(x), *one_by_one)
    for x, y in zip(pytree.tree_leaves(got), pytree.tree_leaves(want), strict=True):
        torch.testing.assert_close(x, y)


def test_a_tangent_in_the_backward_pass():
    """The gradient is linear in what comes from above, so its tangent is that of the tangent."""
    graph, h, w = small_problem()
    out, above = propagate(graph, h, w), random_state(7, 3, 5, seed=4)
    want = torch.autograd.grad(out, [h, w], above.cos(), retain_graph=True)
    with forward_ad.dual_level():
        got = torch.autograd.grad(out, [h, w], forward_ad.make_dual(above, above.cos()))
        for x, y in zip(got, want, strict=True):
            torch.testing.assert_close(forward_ad.unpack_dual(x).tangent, y)


def test_gradient_penalty():
    """A training step through a gradient: what it learns from is as by finite differences."""
    graph, h, w = small_problem()

    def penalty(w):
        (grad,) = torch.autograd.grad(propagate(graph, h, w).sin().sum(), [h], create_graph=True)
        return grad.square().sum()

    assert torch.autograd.gradcheck(penalty, [w], fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tangents_of_other_types(dtype):
    graph, h, w = small_problem(dtype=torch.float32)
    h = h.detach().to(dtype)
    out, tangent = torch.func.jvp(lambda h, w: propagate(graph, h, w), (h, w), (h, w))
    assert tangent.dtype == dtype
    assert_close(tangent, 2 * out, dtype)


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
