"""Why an entity has its score: the walks that lead to it, grouped by rule."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch

from tensus_tn._arguments import check_size
from tensus_tn.rules.bodies import Body, as_atoms, body_weights
from tensus_tn.rules.mining import _depth
from tensus_tn.rules.model import RuleModel
from tensus_tn.rules.rule import Atom, write_body

_MOST_WALKS = 200_000


@dataclass(frozen=True)
class Part:
    """What one rule gives to a score.

    Attributes:
        body: The steps of the rule.
        share: Its part of the score: the rule's weight times the values of its walks.
        walks: How many walks there are.
        example: The entities of the walk with the largest value, both ends included.
    """

    body: tuple[Atom, ...]
    share: float
    walks: int
    example: tuple[str, ...]


@dataclass(frozen=True)
class Explanation:
    """The parts of the score of one answer, the largest first.

    Attributes:
        score: The model's score.
        parts: The largest parts.
        popularity: What the popularity of the answer gives.
        rest: All other parts together.
        complete: Whether all walks were looked at; else some are in `rest`.
    """

    query: tuple[str, str, str]
    score: float
    parts: tuple[Part, ...]
    popularity: float
    rest: float
    complete: bool

    def __str__(self) -> str:
        relation, start, answer = self.query
        lines = [f"{relation}({start}, {answer})  score {self.score:.3f}"]
        for part in self.parts:
            way = " - ".join(part.example)
            more = f" and {part.walks - 1} more" if part.walks > 1 else ""
            lines.append(f"{part.share:+9.3f}  {write_body(part.body)}  by {way}{more}")
        lines.append(f"{self.popularity:+9.3f}  popularity of {answer}")
        lines.append(f"{self.rest:+9.3f}  all other rules")
        return "\n".join(lines)


@torch.no_grad()
def explain(
    model: RuleModel, relation: str | int, start: str | int, answer: str | int, k: int = 10
) -> Explanation:
    """The largest `k` parts of the score of an answer.

    Args:
        model: The model.
        relation: Its name or id.
        start: The entity that the query starts at.
        answer: The entity whose score is explained.
        k: How many rules.

    Example:
        >>> from tensus_tn.rules import KnowledgeGraph, RuleModel
        >>> graph = KnowledgeGraph.from_triples([("a", "r", "b"), ("b", "s", "c"), ("a", "t", "c")])
        >>> why = RuleModel(graph, steps=2).explain("t", "a", "c")
        >>> sorted(part.example for part in why.parts)
        [('a', 'b', 'c'), ('a', 'c')]
        >>> abs(sum(part.share for part in why.parts) + why.popularity - why.score) < 1e-5
        True
    """
    check_size("k", k)
    graph = model.graph
    r, s, o = graph.relation(relation), graph.entity(start), graph.entity(answer)
    walks, complete = _walks_between(model, s, o)
    bodies = sorted(walks)
    weights = body_weights(model, r, bodies).tolist() if bodies else []
    parts = []
    for body, weight in zip(bodies, weights, strict=True):
        total = sum(value for value, _ in walks[body])
        _, way = max(walks[body])
        names = tuple(graph.entities[v] for v in way)
        parts.append(Part(as_atoms(body, graph.relations), weight * total, len(walks[body]), names))
    parts.sort(key=lambda part: -abs(part.share))
    score = float(model.scores(torch.tensor([[r, s]]))[0, o])
    popularity = _popularity(model, r, o)
    rest = score - popularity - sum(part.share for part in parts[:k])
    query = (graph.relations[r], graph.entities[s], graph.entities[o])
    return Explanation(query, score, tuple(parts[:k]), popularity, rest, complete)


def _walks_between(
    model: RuleModel, start: int, end: int
) -> tuple[dict[Body, list[tuple[float, tuple[int, ...]]]], bool]:
    """Values and entities of all walks, by body; and whether they are all."""
    ptr, target, op, fact, value = model.walks.edges
    longest = _depth(model)
    near = _distances(model, end, longest)
    found: dict[Body, list[tuple[float, tuple[int, ...]]]] = {}
    waiting: list[tuple[Body, float, tuple[int, ...]]] = [((), 1.0, (start,))]

    @cache
    def steps(entity: int, left: int) -> list[tuple[int, int, float]]:
        """The edges of an entity from which so many steps can still end at the answer."""
        first, last = int(ptr[entity]), int(ptr[entity + 1])
        columns = (x[first:last].tolist() for x in (target, op, value, fact))
        return [
            (to, i, x)
            for to, i, x, f in zip(*columns, strict=True)
            if f >= 0 and near.get(to, longest + 1) < left
        ]

    looked = 0
    while waiting and looked < _MOST_WALKS:
        body, product, way = waiting.pop()
        looked += 1
        if way[-1] == end:
            found.setdefault(body, []).append((product, way))
        if len(body) == longest:
            continue
        for to, i, x in steps(way[-1], longest - len(body)):
            waiting.append(((*body, i), product * x, (*way, to)))
    return found, not waiting


def _distances(model: RuleModel, end: int, longest: int) -> dict[int, int]:
    """How many steps entities are away from one, up to `longest`; every edge can be walked back."""
    ptr, target, *_ = model.walks.edges
    near, ring = {end: 0}, [end]
    for distance in range(1, longest + 1):
        reached = [int(v) for u in ring for v in target[int(ptr[u]) : int(ptr[u + 1])].tolist()]
        ring = [v for v in dict.fromkeys(reached) if v not in near]
        near.update(dict.fromkeys(ring, distance))
    return near


def _popularity(model: RuleModel, relation: int, answer: int) -> float:
    if model.popularity is None:
        return 0.0
    ptr, entity, count = model.walks.popular
    first, last = int(ptr[relation]), int(ptr[relation + 1])
    n = int(count[first:last][entity[first:last] == answer].sum())
    return float(model.popularity[relation]) * math.log1p(n)
