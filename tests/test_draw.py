"""The figure of a DAG."""

import pytest

from tensus_tn import Dag


def test_draw_shows_every_node_and_label():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    dag = Dag.complete(3)
    axes = dag.draw(edge_labels={(0, 1): "AP", (0, 3): "PA"})
    texts = [text.get_text() for text in axes.texts]
    assert sorted(texts) == sorted(["0", "1", "2", "3", "AP", "PA"])
    axes.figure.canvas.draw()  # renders without an error
    with pytest.raises(ValueError, match=r"\(3, 0\) is no edge"):
        dag.draw(edge_labels={(3, 0): "AP"})
