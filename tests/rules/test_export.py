"""Rules for other programs."""

import csv
import io
import json
import re

import pytest

from tensus_tn.rules import Atom, Rule, draw_rules, to_anyburl, to_csv, to_json

RULES = [
    Rule("is, in", (Atom("a"), Atom("b c", True), Atom("d")), 1.5, 8, 6, 7),
    Rule("r", (), 1.0, 3, 1, 2),
    Rule("r", (Atom("s"),), -0.5, 4, 0, 4),
]


def test_json():
    rows = json.loads(to_json(RULES))
    assert rows[0]["rule"] == "is, in(x, y) <- a(x, z), b c(w, z), d(w, y)"
    assert rows[0]["confidence"] == 0.75
    assert rows[0]["body"][1] == {"relation": "b c", "inverse": True}
    assert rows[1]["rule"] == "r(x, y) <- x = y"


def test_csv():
    rows = list(csv.DictReader(io.StringIO(to_csv(RULES))))
    assert rows[0]["relation"] == "is, in"
    assert float(rows[0]["pca_confidence"]) == pytest.approx(6 / 7)
    assert len(rows) == 3


def test_anyburl():
    assert to_anyburl(RULES) == "8\t6\t0.75\tis__in(X,Y) <= a(X,A), b_c(B,A), d(B,Y)\n"
    [line] = to_anyburl([Rule("r", tuple(map(Atom, "abcdefghi")), 1.0, 1, 1, 1)]).splitlines()
    body = line.partition("<= ")[2]
    assert body.startswith("a(X,A), b(A,B), ")
    assert len(set(re.findall(r"[A-Z]\w*", body))) == 10  # each variable begins with a capital


def test_figure():
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    ax = draw_rules(RULES, Figure().subplots())
    assert len(ax.patches) == 3
    with pytest.raises(ValueError, match="no rules to draw"):
        draw_rules([])


def test_long_names_fit_into_the_figure():
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot as plt

    long = Rule("r" * 60, (Atom("/people/person/place_lived./location" * 3),) * 3, 1.0, 4, 2, 2)
    ax = draw_rules([long, *RULES])
    ax.figure.canvas.draw()
    for text in ax.texts:
        assert text.get_window_extent().x1 < ax.get_window_extent().x1
    plt.close(ax.figure)
