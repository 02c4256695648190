"""A rule as people read it, with what was counted on the graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Atom(NamedTuple):
    """One step of a body: a relation, walked from head to tail, or back (`inverse`)."""

    relation: str
    inverse: bool = False


@dataclass(frozen=True)
class Rule:
    """`relation(x, y) <- body`, a chain of steps from x to y.

    Attributes:
        relation: What the rule concludes.
        body: The steps; none for `x = y`.
        weight: The sum of the tensor's entries that stand for this body, the identity left out.
        body_size: Pairs (x, y) for which the body holds.
        support: Pairs for which the relation holds as well.
        confidence: `support / body_size`, 0 for an empty body.
        pca_confidence: The same, among pairs whose x has some answer for the relation.

    Example:
        >>> body = (Atom("brother"), Atom("mother"))
        >>> rule = Rule("uncle", body, 2.0, body_size=10, support=9, pca_pairs=9)
        >>> print(rule)
        uncle(x, y) <- brother(x, z), mother(z, y)
        >>> rule.confidence, rule.pca_confidence
        (0.9, 1.0)
        >>> print(Rule("aunt", (Atom("niece", inverse=True),), 1.0, 1, 1, 1))
        aunt(x, y) <- niece(y, x)
    """

    relation: str
    body: tuple[Atom, ...]
    weight: float
    body_size: int
    support: int
    pca_pairs: int

    @property
    def confidence(self) -> float:
        """How often the rule is right, where its body holds."""
        return self.support / self.body_size if self.body_size else 0.0

    @property
    def pca_confidence(self) -> float:
        """The same under the assumption that the answers of an x are all known, or none."""
        return self.support / self.pca_pairs if self.pca_pairs else 0.0

    def __str__(self) -> str:
        return f"{self.relation}(x, y) <- {write_body(self.body)}"


def write_body(
    body: Sequence[Atom], variables: tuple[str, ...] = ("x", "z", "w", "v", "u"), last: str = "y"
) -> str:
    """The atoms of a body, `a(x, z), b(z, y)`."""
    names = [*variables, *(f"z{k}" for k in range(len(body)))][: len(body)]
    ends = [*names, last]
    atoms = []
    for k, (relation, inverse) in enumerate(body):
        first, second = (ends[k + 1], ends[k]) if inverse else (ends[k], ends[k + 1])
        atoms.append(f"{relation}({first}, {second})")
    return ", ".join(atoms) or f"{variables[0]} = {last}"
