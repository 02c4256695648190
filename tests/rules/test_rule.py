"""Rules as text."""

from tensus_tn.rules import Atom, Rule
from tensus_tn.rules.rule import write_body


def test_text():
    rule = Rule("r", (Atom("a"), Atom("b", True), Atom("c")), 1.0, 0, 0, 0)
    assert str(rule) == "r(x, y) <- a(x, z), b(w, z), c(w, y)"
    assert rule.confidence == rule.pca_confidence == 0.0


def test_a_long_body_has_enough_variables():
    text = write_body([Atom("a")] * 8)
    assert text.startswith("a(x, z), ")
    assert text.endswith(", y)")
    assert len(set(text.replace("a(", "").replace(")", "").split(", "))) == 9
