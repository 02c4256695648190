"""Rules of a family: who is whose uncle or aunt, from brothers, sisters and parents.

Four generations are drawn at random. A third of the uncles and aunts is hidden; the model learns rules
from the others and finds the hidden ones. The rules are printed with what was counted on the graph.
"""

from __future__ import annotations

import random

from tensus_tn.rules import KnowledgeGraph, Ranking, Rule, RuleModel

Triple = tuple[str, str, str]


def family(couples: int = 25, generations: int = 4, seed: int = 0) -> KnowledgeGraph:
    """`parent(x, y)`: x is a parent of y; the other relations read the same way."""
    draw = random.Random(seed)
    known: list[Triple] = []
    hidden: list[Triple] = []
    number = 0
    parents = [(f"m{k}", f"w{k}") for k in range(couples)]
    siblings: dict[str, list[tuple[str, bool]]] = {}
    for _ in range(generations - 1):
        men, women = [], []
        for man, woman in parents:
            children = []
            for _ in range(draw.randint(1, 4)):
                number += 1
                children.append((f"p{number}", draw.random() < 0.5))
            for child, is_man in children:
                known += [(man, "parent", child), (woman, "parent", child)]
                (men if is_man else women).append(child)
                siblings[child] = [other for other in children if other[0] != child]
                for other, male in siblings[child]:
                    known.append((other, "brother" if male else "sister", child))
                for parent in (man, woman):
                    for other, male in siblings.get(parent, []):
                        hidden.append((other, "uncle" if male else "aunt", child))
        draw.shuffle(men)
        draw.shuffle(women)
        parents = list(zip(men, women, strict=False))
    draw.shuffle(hidden)
    part = len(hidden) // 6
    return KnowledgeGraph.from_triples(
        known + hidden[2 * part :], hidden[:part], hidden[part : 2 * part]
    )


def main() -> tuple[Ranking, list[Rule]]:
    graph = family()
    model = RuleModel(graph, steps=2, rank=2)
    report = model.fit(epochs=6, batch=200, progress=False)
    ranking = model.rank(graph.test)
    print(f"{graph}\n{report}\n\n{ranking}\n")
    rules = [rule for name in ("uncle", "aunt") for rule in model.rules(name, 3, sort="confidence")]
    for rule in rules:
        print(f"{rule}   {rule.support} of {rule.body_size}")
    head, relation, tail = graph.test[0].tolist()
    print(f"\n{model.explain(relation, head, tail, 3)}")
    return ranking, rules


if __name__ == "__main__":
    main()
