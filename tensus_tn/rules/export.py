"""Rules for other programs: JSON, CSV, AnyBURL's format, and a figure."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tensus_tn.rules.rule import Rule, write_body

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMNS = ("relation", "rule", "weight", "body_size", "support", "confidence", "pca_confidence")


def to_json(rules: Sequence[Rule]) -> str:
    """A list of objects, one for each rule.

    Example:
        >>> from tensus_tn.rules import Atom, Rule
        >>> print(to_json([Rule("r", (Atom("s"),), 0.5, 4, 2, 2)]))
        [
         {
          "relation": "r",
          "rule": "r(x, y) <- s(x, y)",
          ...
    """
    bodies = [{"body": [atom._asdict() for atom in rule.body]} for rule in rules]
    return json.dumps(
        [_row(rule) | body for rule, body in zip(rules, bodies, strict=True)], indent=1
    )


def to_csv(rules: Sequence[Rule]) -> str:
    """A line for each rule, after a line of names.

    Example:
        >>> from tensus_tn.rules import Atom, Rule
        >>> print(to_csv([Rule("r", (Atom("s"),), 0.5, 4, 2, 2)]))
        relation,rule,weight,body_size,support,confidence,pca_confidence
        r,"r(x, y) <- s(x, y)",0.5,4,2,0.5,1.0
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_row(rule) for rule in rules)
    return text.getvalue()


def to_anyburl(rules: Sequence[Rule]) -> str:
    r"""AnyBURL's format, which PyClause applies: body size, support, confidence, rule; by tabs.

    Rules that speak against an answer have no place in it and are left out; so are those with an
    empty body. Where the name of a relation holds blanks, commas or brackets, these become `_`.

    Example:
        >>> from tensus_tn.rules import Atom, Rule
        >>> to_anyburl([Rule("r", (Atom("s"), Atom("t", True)), 0.5, 4, 2, 2)])
        '4\t2\t0.5\tr(X,Y) <= s(X,A), t(Y,A)\n'
    """
    lines = []
    for rule in rules:
        if rule.weight > 0 and rule.body:
            safe = [atom._replace(relation=_safe(atom.relation)) for atom in rule.body]
            names = ("X", *"ABCDEF", *(f"A{k}" for k in range(len(safe))))  # capitals: variables
            body = re.sub(r"\((\w+), (\w+)\)", r"(\1,\2)", write_body(safe, names, "Y"))
            counts = f"{rule.body_size}\t{rule.support}\t{rule.confidence!r}"
            lines.append(f"{counts}\t{_safe(rule.relation)}(X,Y) <= {body}\n")
    return "".join(lines)


def draw_rules(rules: Sequence[Rule], ax: Axes | None = None) -> Axes:
    """Bars of the confidence of rules, each with its text; needs matplotlib."""
    if not rules:
        raise ValueError("there are no rules to draw")
    texts = [f"{rule}   ({rule.support} of {rule.body_size})" for rule in rules]
    if ax is None:
        from matplotlib import pyplot as plt

        size = (
            max(8, 0.08 * max(map(len, texts)) + 1),
            0.45 * len(rules) + 1,
        )  # a letter: 0.08 inches
        _, ax = plt.subplots(figsize=size, layout="constrained")
    places = range(len(rules))
    ax.barh(places, [rule.confidence for rule in rules], color="#0072B2", alpha=0.35)
    for place, text in zip(places, texts, strict=True):
        ax.text(0.01, place, text.replace("$", r"\$"), va="center", fontsize=9)
    ax.set(yticks=[], xlim=(0, 1), xlabel="confidence")
    ax.invert_yaxis()
    return ax


def _row(rule: Rule) -> dict[str, Any]:
    values: dict[str, Any] = {name: getattr(rule, name, None) for name in _COLUMNS}
    return values | {"rule": str(rule)}


def _safe(name: str) -> str:
    return re.sub(r"[\s,()]", "_", name)
