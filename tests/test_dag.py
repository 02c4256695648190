import copy
import pickle
from itertools import combinations, product

import networkx as nx
import pytest

from tensus_tn import Dag


def test_attributes_and_topological_order():
    dag = Dag([("b", "y"), ("x", "a"), ("a", "b"), ("x", "y")])
    assert dag.edges == (("b", "y"), ("x", "a"), ("a", "b"), ("x", "y"))
    assert dag.nodes == ("x", "a", "b", "y")
    assert (dag.source, dag.sink, dag.inner) == ("x", "y", ("a", "b"))


def test_path_and_complete():
    assert Dag.path(1).edges == ((0, 1),)
    assert Dag.path(3).inner == (1, 2)
    assert len(Dag.complete(5).edges) == 15
    assert Dag.complete(3).inner == (1, 2)


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([], "at least one edge"),
        ([(0, 0)], r"\(0, 0\) is a self-loop"),
        ([(0, 1), (1, 2), (0, 1)], r"\(0, 1\) is given twice"),
        (
            [(0, 1), (1, 2), (2, 3), (3, 1), (2, 4)],
            "cycle: (1 -> 2 -> 3 -> 1|2 -> 3 -> 1 -> 2|3 -> )",
        ),
        ([(0, 2), (1, 2)], r"one source, got 2: \[0, 1\]"),
        ([(0, 1), (0, 2)], r"one sink, got 2: \[1, 2\]"),
        ([(0, 1), (2, 3)], "one source, got 2"),
        ([(0, 1, 2)], r"pair \(tail, head\), got \(0, 1, 2\)"),
    ],
)
def test_bad_edges_are_named(edges, message):
    with pytest.raises(ValueError, match=message):
        Dag(edges)


@pytest.mark.parametrize("make", [Dag.path, Dag.complete])
@pytest.mark.parametrize("size", [0, -1, 1.5])
def test_bad_sizes(make, size):
    with pytest.raises(ValueError, match="positive integer"):
        make(size)


def test_every_graph_on_four_nodes_is_accepted_exactly_if_it_is_a_dag():
    """All 2^12 sets of edges: the verdict and the attributes agree with networkx."""
    pairs = [(i, j) for i, j in product(range(4), repeat=2) if i != j]
    for size in range(1, 5):
        for edges in combinations(pairs, size):
            graph = nx.DiGraph(edges)
            sources = [v for v in graph if graph.in_degree(v) == 0]
            sinks = [v for v in graph if graph.out_degree(v) == 0]
            good = nx.is_directed_acyclic_graph(graph) and len(sources) == len(sinks) == 1
            try:
                dag = Dag(edges)
            except ValueError:
                assert not good
            else:
                assert good
                assert (dag.source, dag.sink) == (sources[0], sinks[0])
                order = {v: k for k, v in enumerate(dag.nodes)}
                assert all(order[i] < order[j] for i, j in edges)


def test_networkx_round_trip():
    dag = Dag([("x", "a"), ("a", "y"), ("x", "y")])
    assert Dag.from_networkx(dag.to_networkx()) == dag  # the order of the axes too
    plain = nx.DiGraph(dag.edges)
    assert set(Dag.from_networkx(plain).edges) == set(dag.edges)


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (nx.Graph([(0, 1)]), "DiGraph"),
        (nx.MultiDiGraph([(0, 1)]), "DiGraph"),
        (nx.DiGraph({0: [1], 1: [], 2: []}), "node 2 has no edges"),
    ],
)
def test_bad_networkx_graphs(graph, message):
    with pytest.raises(ValueError, match=message):
        Dag.from_networkx(graph)


def test_value_semantics():
    dag = Dag.complete(3)
    assert dag == Dag(dag.edges)
    assert hash(dag) == hash(Dag(dag.edges))
    assert dag != Dag(tuple(reversed(dag.edges)))  # the order of the axes counts
    assert pickle.loads(pickle.dumps(dag)) == dag
    assert copy.deepcopy(dag) == dag
    with pytest.raises(AttributeError, match="immutable"):
        dag.source = 1


def test_repr_fits_a_line_and_can_be_pasted_back():
    dag = Dag([("x", "a"), ("a", "y")])
    assert eval(repr(dag)) == dag
    assert len(repr(Dag.complete(20))) < 80


def test_large_graphs():
    assert Dag.path(50_000).nodes == tuple(range(50_001))
    with pytest.raises(ValueError, match=r"cycle: \d+ -> .* -> \.\.\. -> .* -> \d+$"):
        Dag([*Dag.path(50_000).edges, (40_000, 3)])
    for make in (Dag.path, Dag.complete):
        with pytest.raises(
            ValueError, match=r"edges take .* bytes, more than the .* bytes of memory"
        ):
            make(10**9)
