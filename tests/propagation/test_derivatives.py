"""The derivatives of propagate and propagate_dag: of h, of the weights and of the edge values."""

import pytest
import torch
from torch.autograd import forward_ad

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
