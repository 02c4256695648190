"""Walks over frontiers, against plain PyTorch: values, gradients, ranks, threads, arguments."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tensus_tn import Dag
from tensus_tn.propagation import extension
from tensus_tn.rules import KnowledgeGraph, reference
from tensus_tn.rules.frontier import SCHEMAS, WIDTH
from tests.rules.graphs import DAGS, random_graph, random_weights, training_queries, walker

needs_extension = pytest.mark.skipif(extension._C is None, reason="the extension is not built")
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}


def compare(
    graph, dag, rank, *, width, dtype=torch.float64, popular=True, floor=None, own=True, scale=0.7
):
    w = walker(graph, dag, rank, dtype=dtype, width=width)
    weights, popularity = random_weights(w, scale=scale)
    if floor is not None:
        weights = {edge: x.abs() for edge, x in weights.items()}
        popularity = popularity.abs()
    popularity = popularity if popular else None
    inputs = [*weights.values(), *([popularity] if popular else [])]
    for x in inputs:
        x.requires_grad_()
    queries = training_queries(graph, own=own)
    walk = w._walk(w._flat(weights), popularity, queries)
    want = reference.scores(w._flat(weights), popularity, *walk)
    close = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    torch.testing.assert_close(w.scores(weights, popularity, queries), want.detach(), **close)
    loss = w.loss(weights, popularity, queries, floor=floor)
    by_hand = reference.losses(want, queries, floor is None, floor or 0.0).mean()
    torch.testing.assert_close(loss, by_hand, **close)
    grads = torch.autograd.grad(loss, inputs)
    for got, expected in zip(grads, torch.autograd.grad(by_hand, inputs), strict=True):
        torch.testing.assert_close(got, expected, **close)
    # From the kernel's own scores: other rounding would make other ties.
    scores = w.scores(weights, popularity, queries)
    scores = scores.masked_fill(reference.others(queries, graph.num_entities), -torch.inf)
    of_answer = scores.gather(1, queries.answer[:, None])
    higher, equal = w.ranks_of(weights, popularity, queries)
    assert torch.equal(higher, (scores > of_answer).sum(1))
    assert torch.equal(equal, (scores == of_answer).sum(1) - 1)


def test_the_reference_ranks_as_its_scores_say():
    graph = random_graph()
    w = walker(graph, Dag.path(2), 2)
    weights, popularity = random_weights(w)
    queries = training_queries(graph)
    flat, walk = w._flat(weights), w._walk(w._flat(weights), popularity, queries)
    higher, equal = reference.rule_ranks(flat, popularity, *walk)
    scores = reference.scores(flat, popularity, *walk)
    hidden = reference.others(queries, graph.num_entities)
    for n, row in enumerate(scores.tolist()):
        x = row[int(queries.answer[n])]
        rivals = [y for v, y in enumerate(row) if not hidden[n, v]]
        assert int(higher[n]) == sum(y > x for y in rivals)
        assert int(equal[n]) == sum(y == x for y in rivals) - 1


@pytest.mark.parametrize("width", [1, WIDTH])
@pytest.mark.parametrize("dag", DAGS.values(), ids=DAGS)
@pytest.mark.parametrize("rank", [1, 2, 3, 5])
def test_equals_the_reference(dag, rank, width):
    compare(random_graph(), dag, rank, width=width)


@pytest.mark.parametrize("width", [1, WIDTH])
def test_float32_likelihood_and_masks(width):
    graph = random_graph(30, 2, 60, seed=1)
    compare(graph, Dag.path(2), 4, width=width, dtype=torch.float32)
    compare(graph, Dag.path(2), 2, width=width, popular=False)
    compare(graph, Dag.path(2), 2, width=width, floor=0.1)
    compare(graph, Dag.path(3), 2, width=width, own=False)


@pytest.mark.parametrize("width", [1, WIDTH])
def test_float32_scores_whose_exponentials_vanish(width):
    graph = random_graph(30, 2, 60, seed=1)
    compare(graph, Dag.path(1), 1, width=width, dtype=torch.float32, scale=300)


@settings(max_examples=40)
@given(
    st.integers(1, 40), st.integers(1, 4), st.integers(1, 80), st.integers(0, 9), st.integers(1, 3),
    st.sampled_from([1, WIDTH]),
)  # fmt: skip
def test_random_graphs(entities, relations, facts, seed, steps, width):
    graph = random_graph(entities, relations, facts, seed=seed, test=0)
    compare(graph, Dag.path(steps), 2, width=width)


@pytest.mark.parametrize("width", [1, WIDTH])
def test_degenerate_graphs(width):
    loop = KnowledgeGraph.from_triples([(0, 0, 0)])
    compare(loop, Dag.path(2), 2, width=width)
    lonely = KnowledgeGraph.from_triples([(0, 0, 1)], entities=[str(k) for k in range(50)])
    compare(lonely, Dag.path(2), 2, width=width)


@pytest.mark.parametrize("width", [1, WIDTH])
@pytest.mark.parametrize("weight", [-25.0, 25.0])
def test_popularity_that_outweighs_everything(width, weight):
    """Little is left of large sums where the most popular answers are reached or known."""
    facts = [(k, 0, 40) for k in range(20)] + [(k, 0, 41) for k in range(8)] + [(50, 0, 42)]
    graph = KnowledgeGraph.from_triples(facts, entities=[str(k) for k in range(60)])
    w = walker(graph, Dag.path(1), 1, width=width)
    weights, popularity = random_weights(w)
    popularity.fill_(weight).requires_grad_()
    queries = training_queries(graph)
    loss = w.loss(weights, popularity, queries)
    scores = reference.scores(
        w._flat(weights), popularity, *w._walk(w._flat(weights), popularity, queries)
    )
    by_hand = reference.losses(scores, queries, True, 0.0).mean()
    torch.testing.assert_close(loss, by_hand, rtol=1e-10, atol=1e-10)
    got, expected = (torch.autograd.grad(x, popularity)[0] for x in (loss, by_hand))
    torch.testing.assert_close(got, expected, rtol=1e-8, atol=1e-10)


def test_no_queries():
    w = walker(random_graph(), Dag.path(2), 2)
    weights, _ = random_weights(w)
    none = training_queries(random_graph())
    none = type(none)(*(x[:0] for x in none[:4]), none.known_ptr[:1], none.known[:0])
    assert w.loss(weights, None, none).item() == 0
    assert w.scores(weights, None, none).shape == (0, w.graph.num_entities)


def test_gradcheck_with_the_mask():
    graph = random_graph(6, 2, 10, test=0)
    w = walker(graph, Dag.path(2), 2)
    weights, popularity = random_weights(w)
    queries = training_queries(graph)
    names = list(weights)

    def loss(*x):
        return w.loss(dict(zip(names, x[:-1], strict=True)), x[-1], queries)

    inputs = [x.requires_grad_() for x in (*weights.values(), popularity)]
    assert torch.autograd.gradcheck(loss, inputs)


@needs_extension
@pytest.mark.parametrize("width", [1, WIDTH])
def test_the_same_bits_for_any_number_of_threads(width):
    graph = random_graph(60, 3, 200, seed=2)
    w = walker(graph, Dag.path(3), 3, dtype=torch.float32, width=width)
    weights, popularity = random_weights(w)
    inputs = [x.requires_grad_() for x in (*weights.values(), popularity)]
    results = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            loss = w.loss(weights, popularity, training_queries(graph))
            results.append([loss, *torch.autograd.grad(loss, inputs)])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        for x, y in zip(results[0], other, strict=True):
            assert torch.equal(x, y)


@needs_extension
def test_schemas_are_those_of_the_extension():
    for name, schema in SCHEMAS.items():
        operator = getattr(torch.ops.tensus_tn, name).default
        assert str(operator._schema) == f"tensus_tn::{name}{schema}"


def test_opcheck():
    graph = random_graph(6, 2, 10, test=0)
    w = walker(graph, Dag.path(2), 2)
    weights, popularity = random_weights(w)
    flat, queries = w._flat(weights), training_queries(graph)
    walk = w._walk(flat, popularity, queries)
    share = torch.ones(len(walk[2][0]), dtype=flat.dtype)
    ops = torch.ops.tensus_tn
    for need_gradient in (True, False):
        arguments = (flat, popularity, share, *walk, True, 0.0, need_gradient)
        torch.library.opcheck(ops.rule_loss.default, arguments)
    for operator in (ops.rule_scores, ops.rule_ranks, ops.rule_costs):
        for term, of in ((popularity, walk), (None, w._walk(flat, None, queries))):
            torch.library.opcheck(operator.default, (flat, term, *of))


def test_without_gradients_none_is_found():
    graph = random_graph(6, 2, 10, test=0)
    w = walker(graph, Dag.path(2), 2)
    weights, popularity = random_weights(w)
    queries = training_queries(graph)
    for x in weights.values():
        x.requires_grad_()
    learned = w.loss(weights, popularity, queries)
    assert learned.requires_grad
    with torch.no_grad():
        assert torch.equal(w.loss(weights, popularity, queries), learned)
    flat = w._flat(weights).detach()
    share = torch.ones(len(queries.relation), dtype=flat.dtype)
    walk = w._walk(flat, popularity, queries)
    _, *gradients = torch.ops.tensus_tn.rule_loss(flat, popularity, share, *walk, True, 0.0, False)
    assert [len(x) for x in gradients] == [0, 0]


@needs_extension
@pytest.mark.parametrize(
    ("where", "change", "message"),
    [
        (0, lambda g: [g[0][:-1], *g[1:]], "ptr must rise"),
        (0, lambda g: [g[0], g[1] + 99, *g[2:]], "target must lie in"),
        (0, lambda g: [*g[:2], g[2] + 99, *g[3:]], "op must lie in"),
        (0, lambda g: [*g[:4], g[4].float()], "value must be a vector"),
        (0, lambda g: [g[0], g[1][:-1], *g[2:]], "must have"),
        (0, lambda g: [g[0], torch.zeros_like(g[1]), *g[2:]], "must have an edge to itself"),
        (1, lambda p: [p[0], p[1] - 99, p[2]], "entities of popular must lie in"),
        (1, lambda p: [], "popular must be"),
        (2, lambda q: [q[0].flip(0), *q[1:]], "sorted by relation"),
        (2, lambda q: [q[0], q[1] - 1, *q[2:]], "start must lie in"),
        (2, lambda q: [*q[:4], q[4] + 1, q[5]], "known_ptr must rise"),
        (2, lambda q: q[:5], "queries must be"),
        (3, lambda ranks: [2, *ranks[1:]], "the first and the last of rank 1"),
        (3, lambda ranks: [1, 0, 1], "must be positive"),
        (4, lambda tails: [0, 2], "must lead from a state to a later one"),
        (6, lambda relations: 7, "w must hold a multiple"),
        (7, lambda width: 3, "width must be 1 or"),
    ],
)
def test_wrong_arguments_raise(where, change, message):
    graph = random_graph(6, 2, 10, test=0)
    w = walker(graph, Dag.path(2), 2)
    weights, popularity = random_weights(w)
    walk = w._walk(w._flat(weights), popularity, training_queries(graph))
    walk[where] = change(walk[where])
    with pytest.raises(RuntimeError, match=message):
        torch.ops.tensus_tn.rule_scores(w._flat(weights), popularity, *walk)
