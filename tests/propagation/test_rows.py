"""Rows of the sink, and nothing else: what is selected from the whole result, bit for bit."""

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tensus_tn import Dag, RelationGraph, propagate_dag
from tensus_tn.propagation import operators, rows
from tensus_tn.propagation.arguments import Arguments
from tests.propagation.problems import (
    GRAPHS,
    TOLERANCE,
    Recorder,
    native,
    random_graph,
    sum_dtype,
    tree_detach,
)

DAGS = {
    "one link": Dag.path(1),
    "path": Dag.path(3),
    "complete": Dag.complete(3),
    "diamond": Dag([("s", "a"), ("s", "b"), ("a", "t"), ("b", "t")]),
}
CHOICES = {
    "all": lambda edges, names: None,
    "one a link": lambda edges, names: {
        edge: [names[e % len(names)]] for e, edge in enumerate(edges)
    },
    "few": lambda edges, names: {edges[0]: names[:1], edges[-1]: names[1:]},
    "none": lambda edges, names: {edges[0]: []},
}


def problem(kind, dag, dtype, ranks, seed=0, nodes=30, edges=50, features=8, learned=False):
    generator = torch.Generator().manual_seed(seed)
    sums = sum_dtype(dtype)
    graph = random_graph(nodes, edges, 3, seed=seed, dtype=sums, **GRAPHS[kind])
    values = graph.values().clone().requires_grad_(learned)
    graph = graph.with_values(values) if learned else graph
    rank = {node: ranks[k % len(ranks)] for k, node in enumerate(dag.nodes)}
    h = torch.randn(nodes, rank[dag.source], features, generator=generator).to(dtype)
    weights = {
        (j, k): torch.randn(graph.num_relations, rank[j], rank[k], generator=generator).to(sums)
        for j, k in dag.edges
    }
    variables = [h, *weights.values(), *([values] if learned else [])]
    for x in variables:
        x.requires_grad_()
    return graph, h, weights, variables


def only(h, support):
    keep = torch.zeros(len(h), dtype=torch.bool)
    keep[support] = True
    return torch.where(keep[:, None, None], h, 0.0)


def assert_same_bits(graph, dag, h, weights, variables, wanted, choices=None, support=None):
    """The rows and all gradients, against those of a selection from the whole sink."""
    source = h if support is None else only(h, support)
    sink = propagate_dag(graph, dag, source, weights, choices=choices)
    want = sink if wanted is None else sink.index_select(0, wanted)
    got = propagate_dag(graph, dag, h, weights, choices=choices, rows=wanted, support=support)
    assert torch.equal(got, want)
    grad = torch.randn(want.shape, generator=torch.Generator().manual_seed(9)).to(want.dtype)
    for a, b in zip(
        torch.autograd.grad(got, variables, grad),
        torch.autograd.grad(want, variables, grad),
        strict=True,
    ):
        assert torch.equal(a, b)


@native
@pytest.mark.parametrize("kind", list(GRAPHS))
@pytest.mark.parametrize("dag", list(DAGS))
@pytest.mark.parametrize("choices", list(CHOICES))
@pytest.mark.parametrize("supported", [False, True])
def test_same_bits(kind, dag, choices, supported):
    seed = len(kind) + len(dag)
    dtype = list(TOLERANCE)[seed % 3]
    graph, h, weights, variables = problem(
        kind, DAGS[dag], dtype, (2, 1, 3), seed, learned=seed % 2 == 0
    )
    wanted = torch.tensor([7, 3, 3, 29, 0])
    support = torch.tensor([1, 5, 6, 20]) if supported else None
    names = list(graph.relation_names)
    chosen = CHOICES[choices](DAGS[dag].edges, names)
    assert_same_bits(graph, DAGS[dag], h, weights, variables, wanted, chosen, support)


@native
@settings(max_examples=60)
@given(
    nodes=st.integers(1, 40),
    edges=st.integers(0, 120),
    ranks=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    features=st.integers(1, 20),
    kind=st.sampled_from(list(GRAPHS)),
    dag=st.sampled_from(list(DAGS)),
    dtype=st.sampled_from(list(TOLERANCE)),
    data=st.data(),
)
def test_same_bits_whatever_the_shape(nodes, edges, ranks, features, kind, dag, dtype, data):
    index = st.lists(st.integers(0, nodes - 1), max_size=2 * nodes).map(
        lambda ids: torch.tensor(ids, dtype=torch.int64)
    )
    wanted, support = data.draw(index), data.draw(st.none() | index)
    graph, h, weights, variables = problem(
        kind, DAGS[dag], dtype, ranks, nodes, nodes, edges, features, learned=edges % 2 == 0
    )
    assert_same_bits(graph, DAGS[dag], h, weights, variables, wanted, None, support)


@native
@pytest.mark.parametrize("ranks", [(1, 6), (6, 1)])
@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_same_bits_where_states_are_mixed_first(ranks, dtype):
    graph, h, weights, variables = problem(
        "as in DiffMG", DAGS["path"], dtype, ranks, edges=3000, learned=True
    )
    assert_same_bits(graph, DAGS["path"], h, weights, variables, torch.tensor([4, 9]))


@native
@pytest.mark.parametrize("chosen", ["all", "few"])
def test_a_plan_serves_other_values_ranks_and_types(chosen):
    """What a plan keeps of the graph for the next call must not hold on to what may change."""
    dag, wanted = DAGS["complete"], torch.tensor([3, 9, 4])
    for seed, (ranks, dtype) in enumerate(
        [((2,), torch.float32), ((1, 3), torch.float64), ((2,), torch.bfloat16)]
    ):
        graph, h, weights, variables = problem("as in DiffMG", dag, dtype, ranks, learned=True)
        if seed == 0:
            first = graph
            choices = CHOICES[chosen](dag.edges, list(first.relation_names))
            plan = first.plan_rows(dag, wanted, choices)
        for scale in (1.0, 3.0):
            values = (first.values().to(sum_dtype(dtype)) * scale).detach().requires_grad_()
            graph, variables[-1] = first.with_values(values), values
            assert graph.plan_rows(dag, wanted, choices) is plan
            assert_same_bits(graph, dag, h, weights, variables, wanted, choices)


@native
def test_a_copied_plan_and_a_plan_of_a_graph_that_is_gone():
    dag, wanted = DAGS["complete"], torch.tensor([3, 9, 4])
    graph, h, weights, _ = problem("as in DiffMG", dag, torch.float32, (2,))
    want = propagate_dag(graph, dag, h, weights)[wanted]
    plan = graph.plan_rows(dag, wanted)
    for same in (plan, copy.deepcopy(plan), pickle.loads(pickle.dumps(plan))):
        assert torch.equal(propagate_dag(graph, dag, h, weights, rows=same), want)
    other = copy.deepcopy(graph)
    del graph
    for _ in range(2):
        assert torch.equal(propagate_dag(other, dag, h, weights, rows=plan), want)


@native
@pytest.mark.parametrize("wanted", [None, torch.arange(30), torch.zeros(0, dtype=torch.int64)])
def test_all_rows_and_no_rows(wanted):
    graph, h, weights, variables = problem(
        "symmetric", DAGS["complete"], torch.float32, (2,), learned=True
    )
    assert_same_bits(graph, DAGS["complete"], h, weights, variables, wanted, support=wanted)


@native
def test_same_bits_for_any_number_of_threads():
    before, results = torch.get_num_threads(), []
    dag = DAGS["complete"]
    graph, h, weights, variables = problem(
        "as in DiffMG", dag, torch.float32, (2,), nodes=6000, edges=20000
    )
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            out = propagate_dag(graph, dag, h, weights, rows=torch.arange(0, 6000, 7))
            results.append([out, *torch.autograd.grad(out.square().sum(), variables)])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_wide_indices(monkeypatch):
    monkeypatch.setattr("tensus_tn.propagation.segments.INT32_LIMIT", 1)
    graph, h, weights, variables = problem(
        "as in DiffMG", DAGS["complete"], torch.float64, (2, 3), learned=True
    )
    assert graph.index_dtype == torch.int64
    plan = graph.plan_rows(DAGS["complete"], torch.tensor([2]))
    assert {rows.dtype for rows in plan.needed} == {torch.int64}
    assert_same_bits(graph, DAGS["complete"], h, weights, variables, torch.tensor([2, 5, 2]))


def test_gradcheck():
    dag = DAGS["diamond"]
    graph, h, weights, _ = problem(
        "symmetric", dag, torch.float64, (2,), nodes=7, edges=12, features=2
    )
    values = graph.values().clone().requires_grad_()

    def sink(h, values, *w):
        return propagate_dag(
            graph.with_values(values),
            dag,
            h,
            dict(zip(dag.edges, w, strict=True)),
            rows=torch.tensor([5, 1, 5]),
            support=torch.tensor([0, 2, 3, 4]),
        )

    inputs = (h, values, *weights.values())
    assert torch.autograd.gradcheck(sink, inputs, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(sink, inputs)


@native
@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_operators(dtype):
    dag = DAGS["complete"]
    graph, h, weights, _ = problem("weighted", dag, dtype, (2, 3), nodes=9, learned=True)
    wanted, support = torch.tensor([1, 8]), torch.tensor([0, 1, 2, 3])
    with Recorder() as recorder:
        propagate_dag(
            graph, dag, h, weights, rows=wanted, support=support
        ).square().sum().backward()
    names = {op._schema.name for op in recorder.calls}
    assert names == {f"tensus_tn::{n}" for n in ("needed_rows", "propagate", "propagate_backward")}
    for op, args in recorder.calls.items():
        inputs = tree_detach(args)
        name = op._schema.name.removeprefix("tensus_tn::")
        if name != "needed_rows":  # its sizes depend on what the graph holds
            torch.library.opcheck(op, inputs)
        for a, b in zip(op(*inputs), operators.PLAIN[name](*inputs), strict=True):
            error = (a.double() - b.double()).abs().max() if a.numel() else 0
            assert a.shape == b.shape
            assert error <= TOLERANCE[dtype] * (1 + (b.abs().max() if b.numel() else 0))


def brute_force(graph, dag, wanted, support, choices):
    """Needed rows by the dense matrices: what changes the wanted rows, and can change from zero."""
    matrices = {name: a.toarray() != 0 for name, a in graph.to_scipy().items()}
    nodes = dag.nodes

    def joined(edge):
        names = (choices or {}).get(edge, graph.relation_names)
        empty = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.bool)
        return sum((torch.from_numpy(matrices[name]) for name in names), start=empty)

    marks = torch.zeros(graph.num_nodes, dtype=torch.bool)
    possible = dict.fromkeys(nodes, ~marks)
    if support is not None:
        possible[nodes[0]] = marks.clone()
        possible[nodes[0]][support] = True
    for k in nodes[1:] if support is not None else ():
        into = [edge for edge in dag.edges if edge[1] == k]
        possible[k] = sum(
            ((joined(e).float() @ possible[e[0]].float()) > 0 for e in into), start=marks.clone()
        )
    needed = {node: marks.clone() for node in nodes}
    needed[nodes[-1]][wanted] = True
    for k in reversed(nodes[:-1]):
        for edge in (edge for edge in dag.edges if edge[0] == k):
            needed[k] |= (joined(edge).T.float() @ needed[edge[1]].float()) > 0
        needed[k] &= possible[k]
    return [needed[node].nonzero().flatten().tolist() for node in nodes]


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("kind", list(GRAPHS))
@pytest.mark.parametrize("choices", list(CHOICES))
@pytest.mark.parametrize("dag", list(DAGS))
def test_plan(monkeypatch, plain, kind, choices, dag):
    graph = random_graph(25, 30, 3, seed=len(kind), **GRAPHS[kind])
    dag = DAGS[dag]
    if plain:
        monkeypatch.setattr(torch.ops.tensus_tn, "needed_rows", rows.needed_rows)
    wanted = torch.tensor([3, 17, 3])
    chosen = CHOICES[choices](dag.edges, list(graph.relation_names))
    for support in (None, torch.tensor([2, 9, 11])):
        plan = graph.plan_rows(dag, wanted, chosen, support=support)
        want = brute_force(graph, dag, wanted, support, chosen)
        assert [needed.tolist() for needed in plan.needed] == want
        assert plan.needed[-1][plan.position].tolist() == wanted.tolist()


def test_plans_are_kept_with_a_bound():
    graph, _, _, _ = problem("plain", DAGS["path"], torch.float32, (1,))
    dag = DAGS["path"]
    plan = graph.plan_rows(dag, torch.tensor([1, 2]))
    assert graph.plan_rows(dag, torch.tensor([1, 2])) is plan
    assert graph.with_values(graph.values()).plan_rows(dag, torch.tensor([1, 2])) is plan
    assert graph.plan_rows(dag, torch.tensor([2, 1])) is not plan
    assert graph.plan_rows(dag, torch.tensor([1, 2]), {dag.edges[0]: ["r0"]}) is not plan
    assert graph.plan_rows(dag, torch.tensor([1, 2]), support=torch.tensor([3])) is not plan
    assert graph.plan_rows(DAGS["one link"], torch.tensor([1, 2])) is not plan
    for n in range(30):
        graph.plan_rows(dag, torch.tensor([n]))
    assert len(graph._plans._plans) == rows._MOST_PLANS
    assert graph.plan_rows(dag, torch.tensor([1, 2])) is not plan
    for other in (copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
        assert len(other._plans._plans) == 0


def test_a_mask_and_a_plan_are_as_good_as_ids():
    dag = DAGS["complete"]
    graph, h, weights, _ = problem("as in DiffMG", dag, torch.float32, (2,))
    mask = torch.zeros(30, dtype=torch.bool)
    mask[[4, 11]] = True
    ids = torch.tensor([4, 11])
    want = propagate_dag(graph, dag, h, weights, rows=ids, support=ids)
    assert torch.equal(propagate_dag(graph, dag, h, weights, rows=mask, support=mask), want)
    plan = graph.plan_rows(dag, ids.int(), support=ids)
    assert torch.equal(propagate_dag(graph, dag, h, weights, rows=plan), want)
    assert repr(plan).startswith("RowPlan(2 rows of the sink; of 30 nodes, the states need ")


def test_a_plan_is_for_the_edges_it_was_made_for():
    """A copy, or another type of numbers, has the same ones; self-loops count too."""
    dag, ring = Dag.path(2), torch.stack([torch.arange(6), torch.arange(1, 7) % 6])
    graph = RelationGraph.from_edge_index({"next": ring}, 6)
    plan = graph.plan_rows(dag, torch.tensor([3]))
    weights = {edge: torch.ones(1, 1, 1) for edge in dag.edges}
    h = torch.arange(6.0).unsqueeze(1)
    for same in (graph, copy.deepcopy(graph), graph.to(torch.float64)):
        assert propagate_dag(same, dag, h, weights, rows=plan).item() == 1.0
    for other in (
        RelationGraph.from_edge_index({"next": ring.flip(0)}, 6),
        RelationGraph.from_edge_index({"next": ring[:, :5]}, 6),
        RelationGraph.from_edge_index({"next": ring}, 6, self_loops=True),
    ):
        with pytest.raises(ValueError, match="was made for a graph with other edges"):
            propagate_dag(other, dag, h, weights, rows=plan)


@pytest.mark.parametrize(
    "ids", [torch.tensor([4, 11, 4]), torch.tensor([4, 11], dtype=torch.int32)]
)
def test_transforms_of_torch_func(ids):
    dag = DAGS["complete"]
    graph, h, weights, _ = problem("as in DiffMG", dag, torch.float64, (2,), features=3)

    def some(h):
        return propagate_dag(graph, dag, h, weights, rows=ids, support=torch.arange(9))

    def whole(h):
        return propagate_dag(graph, dag, only(h, torch.arange(9)), weights)[ids.long()]

    h, v = h.detach(), torch.randn(h.shape, dtype=h.dtype)
    for transformed in (
        lambda f: torch.func.jvp(f, (h,), (v,))[1],
        lambda f: torch.func.grad(lambda h: (f(h) ** 2).sum())(h),
        lambda f: torch.func.vmap(f)(torch.stack([h, v])),
        lambda f: torch.func.jvp(torch.func.grad(lambda h: (f(h) ** 3).sum()), (h,), (v,))[1],
    ):
        torch.testing.assert_close(transformed(some), transformed(whole))
    with pytest.raises(ValueError, match="rows can't be mapped by vmap"):
        torch.func.vmap(lambda ids: propagate_dag(graph, dag, h, weights, rows=ids))(ids[:, None])


def test_a_plan_made_in_inference_mode_or_a_transform_is_kept_for_training():
    dag = DAGS["path"]
    for evaluate in (torch.inference_mode(), None):
        graph, h, weights, _ = problem("as in DiffMG", dag, torch.float32, (2,))
        ids = torch.tensor([4, 11, 4])

        def run(h, graph=graph, ids=ids, weights=weights):
            return propagate_dag(graph, dag, h, weights, rows=ids).sum()

        if evaluate is None:
            torch.func.grad(run)(h.detach())
        else:
            with evaluate:
                run(h)
        plan = graph.plan_rows(dag, ids)
        run(h).backward()
        assert graph.plan_rows(dag, ids) is plan
        assert len(pickle.dumps(plan)) > 0


def test_compile():
    dag = DAGS["diamond"]
    graph, h, weights, _ = problem("as in DiffMG", dag, torch.float32, (2,))
    ids, plan = torch.tensor([4, 11]), graph.plan_rows(dag, torch.tensor([4, 11]))
    want = propagate_dag(graph, dag, h, weights, rows=ids)
    for given_rows in (ids, plan):

        def run(h, given_rows=given_rows):
            return propagate_dag(graph, dag, h, weights, rows=given_rows)

        compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(h), want)
    supported = torch.compile(
        lambda h: propagate_dag(graph, dag, h, weights, support=ids),
        fullgraph=True,
        backend="aot_eager",
    )
    assert torch.equal(supported(h), propagate_dag(graph, dag, h, weights, support=ids))


def test_what_does_not_fit_is_refused():
    dag = DAGS["path"]
    graph, h, weights, _ = problem("plain", dag, torch.float32, (1,))
    for wrong, error, text in [
        ([1, 2], TypeError, "rows must be a tensor, got list"),
        (torch.tensor([30]), ValueError, "rows 30 is out of range, there are 30"),
        (torch.tensor([-1]), ValueError, "rows -1 is out of range"),
        (torch.tensor([[1]]), ValueError, r"rows must have shape \(B,\), got \(1, 1\)"),
        (torch.tensor([1.0]), TypeError, "rows: expected integers"),
        (torch.ones(3, dtype=torch.bool), ValueError, r"a mask must have shape \(30,\)"),
    ]:
        with pytest.raises(error, match=text):
            propagate_dag(graph, dag, h, weights, rows=wrong)
    with pytest.raises(ValueError, match="support 31 is out of range"):
        propagate_dag(graph, dag, h, weights, support=torch.tensor([31]))
    with pytest.raises(ValueError, match="leave out rows and support"):
        propagate_dag(graph, dag, h, weights, rows=torch.tensor([1]), return_states=True)
    plan = graph.plan_rows(dag, torch.tensor([1]))
    with pytest.raises(ValueError, match="a plan of rows has its own"):
        propagate_dag(graph, dag, h, weights, rows=plan, support=torch.tensor([1]))
    with pytest.raises(ValueError, match="made for other choices"):
        propagate_dag(graph, dag, h, weights, rows=plan, choices={dag.edges[0]: ["r0"]})
    other = graph.plan_rows(DAGS["one link"], torch.tensor([1]))
    with pytest.raises(ValueError, match="but the dag is"):
        propagate_dag(graph, dag, h, weights, rows=other)
    with pytest.raises(ValueError, match="choices for edges"):
        graph.plan_rows(dag, torch.tensor([1]), {("x", "y"): []})


@native
def test_operators_refuse_needed_rows_that_do_not_fit():
    dag = DAGS["path"]
    graph, h, weights, _ = problem("plain", dag, torch.float32, (1,))
    with Recorder() as recorder, torch.no_grad():
        propagate_dag(graph, dag, h, weights, rows=torch.tensor([3, 4]))
    given = Arguments(*recorder.calls[torch.ops.tensus_tn.propagate.default])
    needed = given.needed
    op = torch.ops.tensus_tn.propagate
    for wrong, text in [
        (needed[:-1], "needed must name rows of 4 states, got 3"),
        ([*needed[:-1], needed[-1].long()], "needed must be a contiguous vector"),
        ([*needed[:-1], torch.tensor([4, 3]).int()], r"ascending rows in \[0, 30\)"),
        ([*needed[:-1], torch.tensor([3, 3]).int()], "ascending rows"),
        ([*needed[:-1], torch.tensor([3, 30]).int()], "ascending rows"),
        ([*needed[:-1], torch.tensor([-1, 3]).int()], "ascending rows"),
    ]:
        with pytest.raises(RuntimeError, match=text):
            op(*given._replace(needed=wrong))


def test_an_empty_graph():
    graph = RelationGraph.from_edge_index({}, 0, identity=True)
    dag = Dag.path(2)
    weights = dict.fromkeys(dag.edges, torch.ones(1, 1, 1))
    none = torch.zeros(0, dtype=torch.int64)
    assert propagate_dag(graph, dag, torch.zeros(0, 3), weights, rows=none).shape == (0, 1, 3)
