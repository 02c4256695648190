"""Groups of feature columns: weights of their own, in one pass."""

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tensus_tn.dag import Dag
from tensus_tn.propagation import extension, operators, segments
from tensus_tn.propagation.arguments import Arguments
from tensus_tn.propagation.functional import propagate, propagate_dag, run_by_group
from tensus_tn.propagation.groups import Groups
from tests.propagation.problems import (
    GRAPHS,
    TOLERANCE,
    assert_close,
    dense,
    grouped_formula,
    native,
    only_chosen,
    operator_calls,
    random_graph,
    random_state,
    random_weights,
    sum_dtype,
    tree_detach,
)

#: How columns are grouped: borders at whole vectors, within them, everywhere, and out of order.
GROUPINGS = {
    "one": lambda features: [0] * features,
    "halves": lambda features: [2 * f // features for f in range(features)],
    "sixteens": lambda features: [f // 16 for f in range(features)],
    "eights": lambda features: [f // 8 for f in range(features)],
    "fives, every other empty": lambda features: [2 * (f // 5) for f in range(features)],
    "singles": lambda features: list(range(features)),
    "in turn": lambda features: [f % 3 for f in range(features)],
    "at random": lambda features: np.random.default_rng(7).integers(0, 4, features).tolist(),
    "the last of three": lambda features: [2] * features,
}


def num_groups(groups):
    return max([2, *groups]) + 2  # one more than there is need for, so the last is empty


def grouped_problem(graph, rank, features, grouping, dtype, dag=None):
    dag = Dag.complete(len(rank) - 1) if dag is None else dag
    groups = GROUPINGS[grouping](features)
    sums = sum_dtype(dtype)
    weights = {
        (j, k): torch.stack(
            [
                random_weights(graph, rank[j], rank[k], 50 * g + 5 * j + k, sums)
                for g in range(num_groups(groups))
            ]
        ).requires_grad_()
        for j, k in dag.edges
    }
    h = random_state(graph.num_nodes, rank[0], features, dtype).requires_grad_()
    return dag, h, weights, groups


def check_dag(graph, rank, features, grouping, dtype, choices=None):
    """All states and the gradients of h and the weights, against the dense formula."""
    dag, h, weights, groups = grouped_problem(graph, rank, features, grouping, dtype)
    states = propagate_dag(
        graph, dag, h, weights, choices=choices, groups=groups, return_states=True
    )
    grad = random_state(graph.num_nodes, rank[-1], features, dtype, seed=2)

    def results(states, h, weights, grad):
        """The states, and the gradients of h and of the weights."""
        gradients = torch.autograd.grad(states[dag.sink], [h, *weights.values()], grad)
        return [*(states[k].detach() for k in dag.nodes), *gradients]

    def wanted(change):
        """The same by the formula, with all numbers changed."""
        h_ref = change(h.detach().double()).requires_grad_()
        refs = {edge: change(w.detach().double()).requires_grad_() for edge, w in weights.items()}
        chosen = {e: torch.stack([only_chosen(graph, {e: x}, choices)[e] for x in w])
                  for e, w in refs.items()}  # fmt: skip
        states = grouped_formula(change(dense(graph)), dag, h_ref, chosen, groups)
        return results(states, h_ref, refs, change(grad.double()))

    assert all(states[k].dtype == dtype for k in dag.nodes)
    got = results(states, h, weights, grad)
    for a, b, size in zip(got, wanted(torch.clone), wanted(torch.abs), strict=True):
        assert_close(a, b, dtype, size)
    got = got[len(dag.nodes) :]
    for a in got[1:]:
        assert (a[[g for g in range(len(a)) if g not in groups]] == 0).all()


@settings(max_examples=60)
@given(
    nodes=st.integers(1, 30),
    edges=st.integers(0, 120),
    relations=st.integers(1, 4),
    kind=st.sampled_from(list(GRAPHS)),
    rank=st.lists(st.integers(1, 5), min_size=2, max_size=4),
    features=st.integers(1, 70),
    grouping=st.sampled_from(list(GROUPINGS)),
    dtype=st.sampled_from(list(TOLERANCE)),
    seed=st.integers(0, 99),
)
@example(30, 90, 3, "as in DiffMG", [1, 2, 2, 1], 64, "sixteens", torch.float32, 0)
@example(30, 90, 3, "as in DiffMG", [1, 2, 2, 1], 44, "sixteens", torch.float32, 0)
@example(30, 90, 3, "as in DiffMG", [2, 2, 2, 2], 128, "sixteens", torch.float32, 0)
@example(30, 90, 3, "as in DiffMG", [1, 2, 2, 1], 64, "eights", torch.float32, 0)
@example(30, 90, 3, "as in DiffMG", [3, 4, 2], 32, "eights", torch.float32, 0)
@example(30, 90, 3, "as in DiffMG", [1, 2, 2, 1], 17, "singles", torch.float32, 0)
@example(30, 90, 3, "as in DiffMG", [1, 8, 1], 33, "in turn", torch.float32, 0)
@example(30, 90, 3, "as in DiffMG", [8, 1, 8], 35, "fives, every other empty", torch.bfloat16, 0)
def test_formula(nodes, edges, relations, kind, rank, features, grouping, dtype, seed):
    options = {"dtype": sum_dtype(dtype), "seed": seed, **GRAPHS[kind]}
    graph = random_graph(nodes, edges, relations, **options)
    check_dag(graph, rank, features, grouping, dtype)


@pytest.mark.parametrize("grouping", list(GROUPINGS))
@pytest.mark.parametrize("names", [["r1"], ["r0", "zero"], []])
def test_choices(grouping, names):
    graph = random_graph(20, 60, dtype=torch.float64, **GRAPHS["as in DiffMG"])
    choices = {(0, 1): names, (1, 2): ["r2", "identity"]}
    check_dag(graph, [2, 3, 1], 33, grouping, torch.float64, choices)


@pytest.mark.parametrize("grouping", list(GROUPINGS))
def test_int64_indices(monkeypatch, grouping):
    monkeypatch.setattr(segments, "INT32_LIMIT", 1)
    graph = random_graph(20, 60, **GRAPHS["as in DiffMG"])
    assert graph.index_dtype == torch.int64
    check_dag(graph, [2, 1, 2], 48, grouping, torch.float32)


@native
@pytest.mark.parametrize("isa", ["plain", "avx2", "avx512"])
@pytest.mark.parametrize("grouping", list(GROUPINGS))
def test_instruction_sets(isa, grouping):
    if not extension._C.isas().get(isa):
        pytest.skip(f"{isa} is not built, or not on this machine")
    graph = random_graph(20, 60, **GRAPHS["as in DiffMG"])
    try:
        extension._C.use_isa(isa)
        check_dag(graph, [1, 2, 2, 1], 64, grouping, torch.float32)
        check_dag(graph, [1, 2, 2, 1], 20, grouping, torch.float32)
    finally:
        extension._C.use_isa(None)


@pytest.mark.parametrize("shape", [(0, 2, 8), (5, 2, 0)])
def test_nothing_to_do(shape):
    graph = random_graph(shape[0], 3 * bool(shape[0]), identity=True)
    h, w = torch.zeros(shape, requires_grad=True), torch.ones(3, 4, 2, 3, requires_grad=True)
    out = propagate(graph, h, w, groups=[f % 3 for f in range(shape[2])])
    out.sum().backward()
    assert out.shape == (shape[0], 3, shape[2])
    assert h.grad.shape == h.shape
    assert (w.grad == 0).all()


def test_no_relations():
    from tensus_tn.propagation.relation_graph import RelationGraph

    graph = RelationGraph.from_edge_index({}, 3)
    out = propagate(graph, torch.ones(3, 1, 4), torch.ones(2, 0, 1, 2), groups=[0, 0, 1, 1])
    assert torch.equal(out, torch.zeros(3, 2, 4))


def test_noncontiguous_and_expanded():
    graph = random_graph(12, 40, dtype=torch.float64, **GRAPHS["as in DiffMG"])
    dag, groups = Dag.path(1), torch.tensor([0, 0, 0, 1, 1, 0, 2, 2])
    h = torch.randn(8, 12, 3, dtype=torch.float64).permute(1, 2, 0)
    w = torch.randn(2, 3, graph.num_relations, 3, dtype=torch.float64).permute(3, 2, 1, 0)
    for h_, w_ in [(h, w), (h[:, :, :1].expand(12, 3, 8), w[:1].expand(3, -1, -1, -1))]:
        want = grouped_formula(dense(graph), dag, h_, {(0, 1): w_}, groups)[1]
        assert_close(propagate(graph, h_, w_, groups=groups), want, torch.float64)


def test_one_group_is_no_group():
    """The same bits: with one group, the kernels take the way that they take without any."""
    graph = random_graph(50, 400, **GRAPHS["as in DiffMG"])
    h = random_state(50, 2, 64, torch.float32).requires_grad_()
    w = random_weights(graph, 2, 2, dtype=torch.float32).requires_grad_()
    plain = propagate(graph, h, w)
    for num, group in [(1, 0), (3, 1)]:
        all_w = torch.stack([w if g == group else w + 1 for g in range(num)])
        out = propagate(graph, h, all_w, groups=[group] * 64)
        assert torch.equal(out, plain)
        for a, b in zip(torch.autograd.grad(out.square().sum(), [h, w]),
                        torch.autograd.grad(plain.square().sum(), [h, w], retain_graph=True),
                        strict=True):  # fmt: skip
            assert torch.equal(a, b)


@pytest.mark.parametrize("grouping", ["sixteens", "eights", "in turn", "singles"])
def test_groups_do_not_touch_each_other(grouping):
    """Every column has the bits that it has among the weights of its group alone."""
    graph = random_graph(50, 400, **GRAPHS["as in DiffMG"])
    dag, h, weights, groups = grouped_problem(graph, [1, 2, 2, 1], 64, grouping, torch.float32)
    out = propagate_dag(graph, dag, h, weights, groups=groups)
    for g in set(groups):
        alone = propagate_dag(graph, dag, h, {edge: w[g] for edge, w in weights.items()})
        mine = [f for f, of in enumerate(groups) if of == g]
        assert torch.equal(out[..., mine], alone[..., mine])


@pytest.mark.parametrize("grouping", ["sixteens", "fives, every other empty", "at random"])
@pytest.mark.parametrize("support", [None, torch.tensor([0, 3, 4, 11])])
def test_rows_and_support(grouping, support):
    graph = random_graph(40, 60, 2, dtype=torch.float64, normalize="row", identity=True)
    dag, h, weights, groups = grouped_problem(graph, [1, 2, 1, 2], 35, grouping, torch.float64)
    rows, inputs = torch.tensor([7, 2, 7, 30]), [h, *weights.values()]
    got = propagate_dag(graph, dag, h, weights, rows=rows, support=support, groups=groups)
    source = h
    if support is not None:
        source = torch.zeros_like(h).index_copy(0, support, h[support])
    want = propagate_dag(graph, dag, source, weights, groups=groups)[rows]
    assert torch.equal(got, want)
    grad = random_state(4, 2, 35)
    for a, b in zip(torch.autograd.grad(got, inputs, grad),
                    torch.autograd.grad(want, inputs, grad), strict=True):  # fmt: skip
        assert torch.equal(a, b)


@pytest.mark.parametrize("threads", [1, 2])
def test_bits_do_not_depend_on_threads(threads):
    graph = random_graph(3000, 60_000, **GRAPHS["as in DiffMG"])
    dag, h, weights, groups = grouped_problem(graph, [1, 2, 2, 1], 20, "in turn", torch.float32)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        out = propagate_dag(graph, dag, h, weights, groups=groups)
        got = [out.detach(), *torch.autograd.grad(out.sum(), [h, *weights.values()])]
        torch.set_num_threads(3)
        out = propagate_dag(graph, dag, h, weights, groups=groups)
        want = [out.detach(), *torch.autograd.grad(out.sum(), [h, *weights.values()])]
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


# ---------------------------------------------------------------------------- derivatives


def tiny_problem(groups, choices=None):
    """A function of h, the edge values and the weights of three links, and its arguments."""
    graph = random_graph(4, 6, 2, dtype=torch.float64, **GRAPHS["as in DiffMG"])
    dag, rank, num = Dag.complete(2), [2, 1, 2], max(groups) + 1
    h = random_state(4, 2, len(groups)).requires_grad_()
    weights = [
        torch.stack([random_weights(graph, rank[j], rank[k], 9 * g + j + k) for g in range(num)])
        for j, k in dag.edges
    ]
    values = graph.values().clone().requires_grad_()

    def f(h, values, *weights):
        links = dict(zip(dag.edges, weights, strict=True))
        return propagate_dag(
            graph.with_values(values), dag, h, links, choices=choices, groups=groups
        )

    return f, (h, values, *(w.requires_grad_() for w in weights))


@pytest.mark.parametrize("groups", [[0, 0, 1], [2, 0, 2]])
@pytest.mark.parametrize("choices", [None, {(0, 1): ["r0"], (1, 2): ["r0"], (0, 2): []}])
def test_first_and_second_derivatives(groups, choices):
    f, arguments = tiny_problem(groups, choices)
    assert torch.autograd.gradcheck(f, arguments, check_forward_ad=True, fast_mode=True)
    assert torch.autograd.gradgradcheck(f, arguments, check_fwd_over_rev=True, fast_mode=True)


def test_vmap_is_a_loop():
    f, (h, values, *weights) = tiny_problem([0, 1, 1])
    batch = torch.stack([weights[0], -weights[0], weights[0].sin()], -1)
    got = torch.func.vmap(lambda w: f(h, values, w, *weights[1:]), -1)(batch)
    for b in range(3):
        torch.testing.assert_close(got[b], f(h, values, batch[..., b], *weights[1:]))


# ---------------------------------------------------------------------------- torch


def grouped_calls(dtype, grouping, names=None):
    graph = random_graph(20, 80, dtype=sum_dtype(dtype), **GRAPHS["as in DiffMG"])
    values = graph.values().clone().requires_grad_()
    _, h, weights, groups = grouped_problem(graph, [2, 3], 19, grouping, dtype)
    graph = graph.with_values(values)
    return operator_calls(graph, h, weights[0, 1], names, groups)


@native
@pytest.mark.parametrize("grouping", list(GROUPINGS))
@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_plain_pytorch_gives_the_same(dtype, grouping):
    calls = grouped_calls(dtype, grouping, ["r1", "identity"])
    for name in ("propagate", "propagate_backward"):
        op, args = calls[f"tensus_tn.{name}.default"]
        args = tree_detach(args)
        for a, b in zip(op(*args), operators.PLAIN[name](*args), strict=True):
            assert_close(a, b, dtype)


def test_one_call_for_each_group_gives_the_same():
    _, args = grouped_calls(torch.float64, "fives, every other empty")[
        "tensus_tn.propagate.default"
    ]
    args = Arguments(*tree_detach(args))

    def run(h, w):
        return torch.ops.tensus_tn.propagate(*args._replace(h=h, w=w, group_sizes=None))

    (got,) = run_by_group(run, args.h, args.w, args.group_sizes)
    assert_close(got, torch.ops.tensus_tn.propagate(*args)[0], torch.float64)


@pytest.mark.parametrize("grouping", ["halves", "in turn"])
def test_opcheck(grouping):
    for op, args in grouped_calls(torch.float32, grouping).values():
        torch.library.opcheck(op, tree_detach(args))


def test_compile():
    graph = random_graph(7, 20, 2, **GRAPHS["as in DiffMG"])
    w = torch.stack([random_weights(graph, 2, 3, g, torch.float32) for g in range(2)])
    h = random_state(7, 2, 6, torch.float32)

    def loss(h, w):
        return propagate(graph, h.sin(), w, groups=(1, 0, 1, 1, 0, 0)).cos().sum()

    inputs = [h.requires_grad_(), w.requires_grad_()]
    compiled = torch.compile(loss, fullgraph=True)
    for a, b in zip(*(torch.autograd.grad(f(h, w), inputs) for f in (compiled, loss)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


# ---------------------------------------------------------------------------- errors


def test_groups_in_order_are_left_alone():
    assert Groups.of(torch.tensor([0, 0, 2]), 3, 3) == Groups([2, 0, 1], None)
    assert Groups.of([], 2, 0) == Groups([0, 0], None)
    assert Groups.of(None, None, 3) == Groups(None, None)


def test_order_and_back():
    groups, state = Groups.of([1, 0, 1, 0], 2, 4), torch.arange(8).reshape(2, 4)
    assert groups.sort(state).tolist() == [[1, 3, 0, 2], [5, 7, 4, 6]]
    assert torch.equal(groups.restore(groups.sort(state)), state)


@pytest.mark.parametrize(
    ("groups", "error", "text"),
    [
        ([0, 1], ValueError, "each of the 3 columns of h, got 2"),
        ([0, 1, 2], ValueError, r"must lie in \[0, 2\), the groups of the weights, got 2"),
        ([0, -1, 0], ValueError, "got -1"),
        ([0, 1.0, 0], TypeError, "must be integers, got 1.0"),
        ([0, True, 0], TypeError, "must be integers, got True"),
        ("010", TypeError, "got str"),
        (3, TypeError, "must be a tensor or integers, got int"),
        (torch.zeros(3), TypeError, "int64 tensor of shape"),
        (torch.zeros(3, 1, dtype=torch.int64), TypeError, r"got torch.int64 of shape \(3, 1\)"),
    ],
)
def test_wrong_groups_are_named(groups, error, text):
    graph = random_graph(5, 10)
    with pytest.raises(error, match=text):
        propagate(graph, torch.ones(5, 1, 3), torch.ones(2, 3, 1, 1), groups=groups)


def test_wrong_weights_are_named():
    graph, dag, h = random_graph(5, 10), Dag.path(2), torch.ones(5, 1, 3)
    one, two = torch.ones(3, 1, 1), torch.ones(2, 3, 1, 1)
    for first, second, groups, text in [
        (one, one, [0] * 3, r"weights\[\(0, 1\)\] must have shape \(G, C, P, Q\) with groups"),
        (two, one, [0] * 3, r"\(1, 2\)\] must have shape \(G, C, P, Q\) = \(2, 3, 1, 'any'\)"),
        (two, two[:1], [0] * 3, r"\(G, C, P, Q\) = \(2, 3, 1, 'any'\), got \(1, 3, 1, 1\)"),
        (two[:0], two, [0] * 3, r"\(G, C, P, Q\) with groups, got \(0, 3, 1, 1\)"),
        (two, two, None, r"\(0, 1\)\] must have shape \(C, P, Q\) = \(3, 1, 'any'\)"),
    ]:
        with pytest.raises(ValueError, match=text):
            propagate_dag(graph, dag, h, {(0, 1): first, (1, 2): second}, groups=groups)
    with pytest.raises(TypeError, match="w must be a tensor, got list"):
        propagate(graph, h, [1.0], groups=[0] * 3)


@native
def test_the_operator_checks_sizes_itself():
    calls = grouped_calls(torch.float32, "halves")
    for op, args in calls.values():
        args = list(tree_detach(args))
        at = [a.name for a in op._schema.arguments].index("group_sizes")
        for sizes, text in [
            ([], "at least one group"),
            ([9, 9, 0, 0], "must add up to 19 columns, got 18"),
            ([20, -1, 0, 0], "must add up to 19 columns, but there is a group of 20 after 0"),
            ([2**62, 2**62, 19, 0], "a group of 4611686018427387904 after 0"),
            ([-1, 20, 0, 0], "a group of -1 after 0"),
            ([10, 9, 0], "w must hold a multiple of 18 numbers"),
        ]:
            with pytest.raises(RuntimeError, match=text):
                op(*args[:at], sizes, *args[at + 1 :])
