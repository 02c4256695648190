"""The picture of a DAG is well-formed SVG with a curve and a label for every link."""

import xml.etree.ElementTree as ET

import pytest

from tensus_tn import Dag
from tensus_tn.explorer.svg import dag_svg

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("dag", [Dag.path(1), Dag.complete(5), Dag([("s", "<a>"), ("<a>", "t")])])
def test_every_link_and_state_is_drawn_inside_the_picture(dag):
    picture = ET.fromstring(dag_svg(dag, dict.fromkeys(dag.edges, "a & b")))
    width, height = float(picture.get("width")), float(picture.get("height"))
    links = [node.get("id") for node in picture.iter(f"{SVG}path") if node.get("id")]
    assert links == [f"link-{e}" for e in range(len(dag.edges))]
    names = [node.text for node in picture.iter(f"{SVG}text") if node.get("class") == "name"]
    assert names == [str(node) for node in dag.nodes]
    texts = [node for node in picture.iter(f"{SVG}text") if node.get("class") == "label"]
    assert [node.text for node in texts] == ["a & b"] * len(dag.edges)
    for node in texts:
        assert 0 < float(node.get("x")) < width
        assert 0 < float(node.get("y")) < height


def test_labels_of_different_links_do_not_lie_on_each_other():
    dag = Dag.complete(4)
    texts = ET.fromstring(dag_svg(dag, {})).iter(f"{SVG}text")
    places = [(node.get("x"), node.get("y")) for node in texts if node.get("class") == "label"]
    assert len(set(places)) == len(dag.edges)
