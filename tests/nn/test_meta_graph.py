"""Learned meta-graphs as text, figures, files and counts."""

import io
import json

import pytest

from tensus_tn import Dag
from tensus_tn.nn import MetaGraph, MetaGraphConv, MetaPath
from tests.nn.meta_graphs import DAGS, TYPES

EDGE_TYPES = {name: (a, name, b) for name, (a, b) in TYPES.items()}
DIAMOND = MetaGraph(
    Dag.complete(3),
    {(0, 1): "PA", (0, 2): "identity", (0, 3): "zero"}
    | {(1, 2): "AP", (1, 3): "AP", (2, 3): "identity"},
    edge_types=EDGE_TYPES,
)


def test_a_path_prints_as_a_meta_path():
    relations = {(0, 1): "PA", (1, 2): "CP"}
    assert str(MetaGraph(Dag.path(2), relations, edge_types=EDGE_TYPES)) == "CPA: A -PA-> P -CP-> C"
    assert str(MetaGraph(Dag.path(2), relations)) == "-PA-> -CP->"
    broken = {(0, 1): "PC", (1, 2): "PA"}
    assert str(MetaGraph(Dag.path(2), broken, edge_types=EDGE_TYPES)) == "C -PC-> P, A -PA-> P"
    nothing = MetaGraph(Dag.path(1), {(0, 1): "zero"})
    assert str(nothing) == "no path from source to sink"
    assert nothing.links == ()


def test_a_graph_prints_all_its_ways_with_their_number():
    assert str(DIAMOND).splitlines() == ["APA: A -PA-> P -AP-> A  (x 2)", "identity"]
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
    assert clash.title() == str(clash)
    assert MetaPath(()).title() == "identity"


def test_a_notebook_shows_the_links_that_count():
    picture = DIAMOND._repr_html_()
    assert picture.startswith("<svg")
    assert picture.count(">AP</text>") == 2
    assert "zero" not in picture
    assert MetaGraph(Dag.path(1), {(0, 1): "zero"})._repr_html_() == "no path from source to sink"


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
