"""Learned meta-graphs as text, figures, files and counts."""

import io
import itertools
import json

import pytest
import torch

from tensus_tn import Dag, RelationGraph
from tensus_tn.nn import MetaGraph, MetaGraphConv, MetaPath
from tests.nn.meta_graphs import DAGS, TYPES, dense, random_graph

EDGE_TYPES = {name: (a, name, b) for name, (a, b) in TYPES.items()}
DIAMOND = MetaGraph(
    Dag.complete(3),
    {(0, 1): "PA", (0, 2): "identity", (0, 3): "zero"}
    | {(1, 2): "AP", (1, 3): "AP", (2, 3): "identity"},
    edge_types=EDGE_TYPES,
)


def test_a_path_prints_as_a_meta_path():
    relations = {(0, 1): "PA", (1, 2): "CP"}
    assert str(MetaGraph(Dag.path(2), relations, edge_types=EDGE_TYPES)) == "A -PA-> P -CP-> C"
    assert str(MetaGraph(Dag.path(2), relations)) == "-PA-> -CP->"
    broken = {(0, 1): "PC", (1, 2): "PA"}
    assert str(MetaGraph(Dag.path(2), broken, edge_types=EDGE_TYPES)) == "C -PC-> P, A -PA-> P"
    nothing = MetaGraph(Dag.path(1), {(0, 1): "zero"})
    assert str(nothing) == "no path from source to sink"
    assert nothing.links == ()


def test_a_graph_prints_all_its_ways_with_their_number():
    assert str(DIAMOND).splitlines() == ["A -PA-> P -AP-> A  (x 2)", "identity"]
    assert {(str(p), p.weight) for p in DIAMOND.paths()} == {
        ("A -PA-> P -AP-> A", 2.0),
        ("identity", 1.0),
    }


def test_paths_leave_out_what_does_not_join():
    relations = {(0, 1): "PC", (0, 2): "AP", (1, 2): "PA"}
    (path,) = MetaGraph(Dag.complete(2), relations, edge_types=EDGE_TYPES).paths()
    assert path == MetaPath((("P", "AP", "A"),))


def test_letters():
    kinds = [("author", "w", "paper"), ("paper", "i", "venue"), ("venue", "p", "paper")]
    assert MetaPath(tuple(kinds)).letters() == "PVPA"
    assert (
        MetaPath(tuple(kinds[:2])).letters({"author": "Au", "paper": "P", "venue": "V"}) == "VPAu"
    )
    clash = MetaPath((("actor", "in", "movie"), ("movie", "of", "award")))
    with pytest.raises(ValueError, match="begin alike"):
        clash.letters()


def test_the_best_meta_graphs_are_those_of_the_tensor():
    conv = MetaGraphConv(3, 4, TYPES, target="A", dag=Dag.complete(3), init_scale=1.0)
    best = conv.meta_graphs(4)
    dense_tensor = conv.tensor.to_dense()
    values, index = dense_tensor.flatten().topk(4)
    for m, value, flat in zip(best, values.tolist(), index.tolist(), strict=True):
        assert m.probability == pytest.approx(value)
        at = torch.unravel_index(torch.tensor(flat), conv.tensor.shape)
        for edge, i in zip(m.dag.edges, at, strict=True):
            assert m.relations[edge] == conv.tensor.choice_names[edge][i]
            assert m.weights[edge] == pytest.approx(conv.tensor.marginal([edge])[i].item())
    assert conv.meta_graph() == best[0]


@pytest.mark.parametrize("ties", ["node", "global"])
@pytest.mark.parametrize("dag", DAGS.values(), ids=DAGS)
def test_weights_of_meta_paths_are_the_coefficients_of_the_propagation(dag, ties):
    """The layer's matrix is the sum over words of weight times product."""
    torch.set_default_dtype(torch.float64)
    try:
        names = ["PA", "AP"]
        conv = MetaGraphConv(7, 7, names, dag=dag, ties=ties, init_scale=1.0)
        with torch.no_grad():
            conv.lin.weight.copy_(torch.eye(7))
            conv.lin.bias.zero_()
        graph = random_graph(names=names)
    finally:
        torch.set_default_dtype(torch.float32)
    matrices = dense(graph)
    total = torch.zeros(7, 7, dtype=torch.float64)
    paths = conv.meta_paths(10_000)
    for path in paths:
        product = torch.eye(7, dtype=torch.float64)
        for _, name, _ in path.edge_types:
            product = matrices[name] @ product
        total += path.weight * product
    torch.testing.assert_close(conv(torch.eye(7, dtype=torch.float64), graph), total)
    assert {name for path in paths for _, name, _ in path.edge_types} == set(names)
    weights = [path.weight for path in paths]
    assert weights == sorted(weights, reverse=True)
    assert conv.meta_paths(2) == paths[:2]


def count_by_hand(graph, meta_graph):
    """All assignments of nodes to states, tried one after the other."""
    edges = {
        name: {(int(c), int(r)) for r, c in torch.nonzero(a)} for name, a in dense(graph).items()
    }
    links = meta_graph.links
    states = sorted({state for edge in links for state in edge}, key=str)
    total = 0
    for nodes in itertools.product(range(graph.num_nodes), repeat=len(states)):
        at = dict(zip(states, nodes, strict=True))
        total += all(
            at[j] == at[k]
            if meta_graph.relations[j, k] == "identity"
            else (at[j], at[k]) in edges[meta_graph.relations[j, k]]
            for j, k in links
        )
    return total if links else 0


@pytest.mark.parametrize("dag", DAGS.values(), ids=DAGS)
def test_instances_are_counted(dag):
    found = []
    for seed in range(6):
        torch.manual_seed(seed)
        graph = random_graph(5, edges=10, normalize=None, self_loops=False)
        names = ["PA", "AP", "X", "identity", "zero"]
        relations = {e: names[int(torch.randint(5, ()))] for e in dag.edges}
        meta_graph = MetaGraph(dag, relations)
        found.append(meta_graph.count(graph))
        assert found[-1] == count_by_hand(graph, meta_graph)
    assert any(found)


def test_self_loops_are_no_instances_and_large_tables_are_refused():
    index = {"A": torch.tensor([[0, 0, 1], [1, 2, 2]])}
    relations = {(0, 1): "A", (0, 2): "A", (1, 2): "A"}
    triangle = MetaGraph(Dag.complete(2), relations)
    for loops in (False, True):
        graph = RelationGraph.from_edge_index(index, 3, normalize="row", self_loops=loops)
        assert triangle.count(graph) == 1
    symmetric = RelationGraph.from_edge_index(index, 3, normalize="sym", self_loops=True)
    assert symmetric.num_edges == 3 + 3  # loops are stored: node 0 sends, but does not receive
    assert triangle.count(symmetric) == 1
    relations = {(0, 1): "A", (0, 2): "identity", (1, 2): "identity"}
    loop = MetaGraph(Dag.complete(2), relations)  # all states are one node
    with_loop = {"A": torch.tensor([[0, 1, 1], [1, 1, 2]])}
    for options in ({}, {"self_loops": True}, {"self_loops": True, "normalize": "sym"}):
        assert loop.count(RelationGraph.from_edge_index(with_loop, 3, **options)) == 1
    every = RelationGraph.from_edge_index(
        {"A": torch.cartesian_prod(*[torch.arange(6)] * 2).t()}, 6
    )
    assert triangle.count(every) == 6**3
    with pytest.raises(ValueError, match="a table of 216 rows, above the limit of 100"):
        triangle.count(every, max_rows=100)
    with pytest.raises(ValueError, match="no relation 'B'"):
        MetaGraph(Dag.path(1), {(0, 1): "B"}).count(graph)


def test_exports():
    networkx = pytest.importorskip("networkx")
    graph = DIAMOND.to_networkx()
    assert graph.edges[0, 2]["relation"] == "identity"
    assert (0, 3) not in graph.edges
    assert networkx.is_directed_acyclic_graph(graph)
    dot = MetaGraph(Dag([("a", 'b"c')]), {("a", 'b"c'): "PA"}).to_dot()
    assert '"a" -> "b\\"c" [label="PA"]' in dot
    again = MetaGraph.from_json(DIAMOND.to_json())
    assert again == DIAMOND
    assert len({again, DIAMOND}) == 1
    assert list(again.dag.edges) == list(DIAMOND.dag.edges)
    learned = MetaGraphConv(3, 4, TYPES, dag=DAGS["named"]).meta_graph()
    assert MetaGraph.from_json(learned.to_json()) == learned


def test_bad_files_and_bad_meta_graphs():
    rest = {"edge_types": {}, "probability": 1.0}
    links = ([[0, 1]], [[[0], 1, "A", None]], [[0, 1, 3, None]])
    for text in ("{", "[]", "{}", *(json.dumps({"links": link, **rest}) for link in links)):
        with pytest.raises(ValueError, match="not the JSON of a MetaGraph"):
            MetaGraph.from_json(text)
    with pytest.raises(TypeError, match=r"\(0, 0\)"):
        MetaGraph(Dag([((0, 0), 1)]), {((0, 0), 1): "A"}).to_json()
    with pytest.raises(ValueError, match="each of the links"):
        MetaGraph(Dag.path(2), {(0, 1): "A"})


def test_the_figure_shows_links_and_weights():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    conv = MetaGraphConv(3, 4, TYPES, dag=Dag.path(2))
    learned = conv.meta_graph()
    texts = {text.get_text() for text in learned.draw().texts}
    for edge in learned.links:
        assert f"{learned.relations[edge]} {learned.weights[edge]:.2f}" in texts
    texts = {text.get_text() for text in DIAMOND.draw().texts}
    assert {"PA", "AP", "identity"} <= texts
    assert "zero" not in texts
    money = MetaGraph(Dag.path(2), {(0, 1): "$_^$", (1, 2): "a$b$_"}).draw()
    money.figure.savefig(io.BytesIO())  # this is where a formula would be read
    with pytest.raises(ValueError, match="no path"):
        MetaGraph(Dag.path(1), {(0, 1): "zero"}).draw()
