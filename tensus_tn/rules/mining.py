"""The rules behind a model: bodies that occur on the graph, weighted by it, counted on the graph.

The largest entries of a tensor alone are poor rules, because nothing keeps the weight of a body small
that never occurs. So bodies are read off walks that do occur: between the ends of facts, and at random.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from tensus_tn._arguments import check_size
from tensus_tn.rules.bodies import Body, Counter, as_atoms, body_weights, inverted
from tensus_tn.rules.model import RuleModel
from tensus_tn.rules.rule import Rule
from tensus_tn.rules.walks import WalkGraph

Order = Literal["weight", "confidence", "pca_confidence", "support"]

_FACTS = 200  # facts of a relation that walks are sought between
_WALKS = 50  # of each kind, for each fact
_COUNTED = 10  # bodies that are counted, for each rule that is wanted


def mine(
    model: RuleModel,
    relation: str | int,
    k: int = 10,
    *,
    sort: Order = "weight",
    negative: bool = False,
    inverse: bool = False,
    min_support: int = 1,
    seed: int = 0,
) -> list[Rule]:
    """The best `k` rules of a relation, their counts exact, on the training triples.

    Args:
        model: A trained model.
        relation: Its name or id.
        k: How many.
        sort: What the best are the largest in.
        negative: Rules that speak against an answer instead, by falling absolute weight; these need
            no support.
        inverse: From the tensor of queries for the head. The rules are written the same way round.
        min_support: Rules with less are left out, unless they are negative.
        seed: Of the walks that bodies are read off.

    Example:
        >>> from tensus_tn.rules import KnowledgeGraph, RuleModel
        >>> triples = [(f"c{k}", "child", f"p{k}") for k in range(9)]
        >>> triples += [(f"p{k}", "parent", f"c{k}") for k in range(8)]
        >>> graph = KnowledgeGraph.from_triples(triples)
        >>> model = RuleModel(graph, steps=1, rank=1)
        >>> _ = model.fit(epochs=30, progress=False)
        >>> [rule] = model.rules("parent", 1)
        >>> print(rule, rule.support, rule.body_size)
        parent(x, y) <- child(y, x) 8 9
    """
    check_size("k", k)
    if sort not in get_args(Order):
        raise ValueError(f"sort must be one of {get_args(Order)}, got {sort!r}")
    graph = model.graph
    R = graph.num_relations
    r = graph.relation(relation)
    asked = r + R if inverse else r
    longest = _depth(model)
    bodies = sorted(_bodies(model.walks, asked, longest, np.random.default_rng(seed)))
    if not bodies:
        return []
    weights = body_weights(model, asked, bodies)
    sign = -1.0 if negative else 1.0
    order = (sign * weights).argsort(descending=True).tolist()
    order = [n for n in order if sign * float(weights[n]) > 0]
    counter = Counter(graph.train, graph.num_entities, R)
    rules = []
    for n in order[: _COUNTED * k]:
        body = bodies[n]
        if inverse:
            body = tuple(inverted(op, R) for op in reversed(body))
        pairs, support, pca = counter.count(r, body)
        if negative or support >= min_support:
            atoms = as_atoms(body, graph.relations)
            name = graph.relations[r]
            rules.append(Rule(name, atoms, float(weights[n]), pairs, support, pca))
    if sort != "weight":
        rules.sort(key=lambda rule: getattr(rule, sort), reverse=True)
    return rules[:k]


def _depth(model: RuleModel) -> int:
    """The length of the longest path of the DAG."""
    depth = {model.dag.source: 0}
    for node in model.dag.nodes[1:]:
        depth[node] = 1 + max(depth[tail] for tail, head in model.dag.edges if head == node)
    return depth[model.dag.sink]


def _bodies(walks: WalkGraph, asked: int, longest: int, rng: np.random.Generator) -> set[Body]:
    """Bodies that occur: on walks between the ends of facts, and on walks from their starts."""
    edges = _Edges(walks)
    facts = np.flatnonzero(edges.op == asked)
    facts = rng.permutation(facts)[:_FACTS]
    found: set[Body] = set()
    for fact in facts.tolist():
        start, answer = int(edges.source[fact]), int(edges.target[fact])
        found |= edges.between(start, answer, longest, rng)
        found |= edges.from_start(start, longest, rng)
    found.discard((asked,))  # it says nothing
    found.discard(())
    return found


class _Edges:
    """The edges of facts as arrays, without the identity."""

    def __init__(self, walks: WalkGraph) -> None:
        keep = walks.edges.fact >= 0
        self.source = walks.sources()[keep].numpy()
        self.target = walks.edges.target[keep].long().numpy()
        self.op = walks.edges.op[keep].long().numpy()
        self.ptr = np.searchsorted(self.source, np.arange(walks.num_entities + 1))
        self.size, self.R = walks.num_entities, walks.num_relations
        pair = self.source * self.size + self.target
        order = np.argsort(pair, kind="stable")
        self.pair, self.pair_op = pair[order], self.op[order]

    def out(self, entity: int, rng: np.random.Generator) -> list[tuple[int, int]]:
        """Some of the steps (operator, target) from an entity."""
        first, last = self.ptr[entity], self.ptr[entity + 1]
        chosen = np.arange(first, last)
        if len(chosen) > _WALKS:
            chosen = rng.choice(chosen, _WALKS, replace=False)
        return list(zip(self.op[chosen].tolist(), self.target[chosen].tolist(), strict=True))

    def direct(self, start: int, end: int) -> list[int]:
        """The operators of all edges between two entities."""
        pair = start * self.size + end
        first, last = np.searchsorted(self.pair, [pair, pair + 1])
        return self.pair_op[first:last].tolist()  # type: ignore[no-any-return]

    def between(self, start: int, end: int, longest: int, rng: np.random.Generator) -> set[Body]:
        """Walks between two entities: some first steps, some last ones, and edges that join them."""
        found: set[Body] = {(op,) for op in self.direct(start, end)}
        walks: list[tuple[Body, int]] = [((), start)]
        for _ in range(longest - 1):
            steps = [
                ((*body, op), target) for body, at in walks for op, target in self.out(at, rng)
            ]
            if len(steps) > _WALKS:
                steps = [steps[k] for k in rng.choice(len(steps), _WALKS, replace=False)]
            walks = steps
            for body, at in walks:
                found |= {(*body, op) for op in self.direct(at, end)}
        back = self.out(end, rng)
        if longest > 2:
            first = self.out(start, rng)
            for op, at in first[:_WALKS]:
                for last, before in back[:_WALKS]:
                    for middle in self.direct(at, before):
                        found.add((op, middle, inverted(last, self.R)))
        return found

    def from_start(self, start: int, longest: int, rng: np.random.Generator) -> set[Body]:
        """A few walks at random: bodies that may speak against an answer."""
        found: set[Body] = set()
        for _ in range(4):
            body, at = (), start
            for _ in range(longest):
                first, last = self.ptr[at], self.ptr[at + 1]
                if first == last:
                    break
                edge = int(rng.integers(first, last))
                body, at = (*body, int(self.op[edge])), int(self.target[edge])  # type: ignore[assignment]
                found.add(body)
        return found
