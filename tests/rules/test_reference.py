"""Walks in plain PyTorch, against products of dense matrices, path by path of the DAG."""

import pytest
import torch

from tensus_tn import Dag
from tensus_tn.rules import reference
from tests.rules.graphs import DAGS, random_graph, random_weights, training_queries, walker
from tests.rules.test_walks import matrices


def dense_scores(graph, w, weights, relation, start, own):
    """Sum over the DAG's paths of products of matrices; the own fact is taken out of these."""
    A = matrices(graph, "both")
    if own >= 0:
        head, r, tail = graph.train[own].tolist()
        A[r, tail, head] = A[graph.num_relations + r, head, tail] = 0
    state = {w.dag.source: torch.eye(graph.num_entities, dtype=torch.float64)[:, [start]]}
    for node in w.dag.nodes[1:]:
        links = [(j, k) for j, k in w.dag.edges if k == node]
        state[node] = sum(
            torch.einsum("ipq,ivu,up->vq", weights[edge][relation], A, state[edge[0]])
            for edge in links
        )
    return state[w.dag.sink][:, 0]


@pytest.mark.parametrize("dag", DAGS.values(), ids=DAGS)
def test_scores(dag):
    graph = random_graph(isolated=1)
    w = walker(graph, dag, 2)
    weights, popularity = random_weights(w)
    queries = training_queries(graph)
    got = reference.scores(w._flat(weights), None, *w._walk(w._flat(weights), None, queries))
    with_counts = reference.scores(
        w._flat(weights), popularity, *w._walk(w._flat(weights), popularity, queries)
    )
    for n in range(0, len(queries.relation), 3):
        r, s, o, own = (int(column[n]) for column in queries[:4])
        want = dense_scores(graph, w, weights, r, s, own)
        torch.testing.assert_close(got[n], want)
        R = graph.num_relations
        for v in range(graph.num_entities):
            facts = graph.train.tolist()
            count = sum((h if r >= R else t) == v and i == r % R for h, i, t in facts) - (v == o)
            torch.testing.assert_close(
                with_counts[n, v],
                want[v] + popularity[r] * torch.tensor(1.0 + count).double().log(),
            )


@pytest.mark.parametrize(("exponential", "floor"), [(True, 0.0), (False, 0.3)])
def test_losses(exponential, floor):
    graph = random_graph()
    queries = training_queries(graph)
    x = torch.rand(len(queries.relation), graph.num_entities, dtype=torch.float64)
    f = x.exp() if exponential else x + floor
    losses = reference.losses(x, queries, exponential, floor)
    for n in range(0, len(x), 5):
        known = set(queries.known[queries.known_ptr[n] : queries.known_ptr[n + 1]].tolist())
        answer = int(queries.answer[n])
        total = sum(f[n, v] for v in range(graph.num_entities) if v == answer or v not in known)
        torch.testing.assert_close(losses[n], (total / f[n, answer]).log())


def test_some_queries_at_a_time_are_all_of_them(monkeypatch):
    graph = random_graph(8, 2, 20, test=0)
    w = walker(graph, Dag.path(2), 2)
    weights, popularity = random_weights(w)
    queries = training_queries(graph)
    flat = w._flat(weights)
    share = torch.rand(len(queries.relation), dtype=flat.dtype)
    walk = w._walk(flat, popularity, queries)
    whole = [
        reference.scores(flat, popularity, *walk),
        *reference.rule_loss(flat, popularity, share, *walk, True, 0.0, True),
    ]
    monkeypatch.setattr(reference, "_ROOM", 3 * 4 * len(w.graph.edges.target))
    first = next(reference.parts(queries, 4 * len(w.graph.edges.target)))
    assert len(first[0]) == 3
    few = [
        reference.scores(flat, popularity, *walk),
        *reference.rule_loss(flat, popularity, share, *walk, True, 0.0, True),
    ]
    for x, y in zip(whole, few, strict=True):
        torch.testing.assert_close(x, y)


def test_everything_is_on_the_device_of_the_weights():
    """On `meta`, the device without values: it stands for a GPU, operations over two devices fail."""
    graph = random_graph(8, 2, 20, test=0)
    w = walker(graph, Dag.path(2), 2)
    weights, popularity = random_weights(w)
    flat, popularity = w._flat(weights).to("meta"), popularity.to("meta")
    walk = w._walk(flat, popularity, training_queries(graph))
    assert all(x.is_meta for part in walk[:3] for x in part)
    share = flat.new_ones(len(walk[2][0]))
    found = [
        reference.scores(flat, popularity, *walk),
        *reference.rule_loss(flat, popularity, share, *walk, True, 0.0, True),
        *reference.rule_ranks(flat, popularity, *walk),
        reference.rule_costs(flat, popularity, *walk),
    ]
    assert all(x.is_meta for x in found)
