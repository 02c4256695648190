"""A genetic search over meta-graphs: cross the best, mutate their links, score, repeat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from tensus_tn.network.tensor import DagTensor
from tensus_tn.nn import MetaGraph
from tensus_tn.tasks.cross_entropy import Candidate, chosen_meta_graphs

#: The choices of all links of all networks, one after the other.
Genes = tuple[int, ...]


def genetic_search(
    tensors: Sequence[DagTensor],
    score: Callable[[Sequence[MetaGraph]], float],
    *,
    generations: int,
    population: int,
    seed: int,
    mutation: float = 0.1,
) -> tuple[list[Candidate], list[list[float]]]:
    """Find meta-graphs of low score with at most `generations * population` calls of `score`.

    The first generation is drawn uniformly. The parents of every other one are the better half of a
    population among all that were scored: a child takes each link's choice from one of two parents,
    and forgets it for a uniform one with the chance `mutation`.

    Args:
        tensors: One for each network, for its DAG and the choices of its links alone.
        score: Takes one meta-graph for each tensor.
        generations: The first one included.
        population: New meta-graphs of a generation.
        seed: For all draws.
        mutation: Between 0 and 1.

    Returns:
        All candidates, best first, and the scores of every generation.
    """
    random = Random(seed)
    sizes = [size for tensor in tensors for size in tensor.shape]
    scores: dict[Genes, float] = {}
    history = []
    for _ in range(generations):
        parents = sorted(scores, key=scores.__getitem__)[: max(2, population // 2)]
        fresh = _fresh(parents, scores, sizes, population, mutation, random)
        for genes in fresh:
            scores[genes] = score(chosen_meta_graphs(tensors, _by_tensor(tensors, genes)))
        history.append([scores[genes] for genes in fresh])
    best = sorted(scores, key=scores.__getitem__)
    found = [
        Candidate(scores[genes], chosen_meta_graphs(tensors, _by_tensor(tensors, genes)))
        for genes in best
    ]
    return found, history


def _fresh(
    parents: Sequence[Genes],
    known: dict[Genes, float],
    sizes: Sequence[int],
    population: int,
    mutation: float,
    random: Random,
) -> list[Genes]:
    """Up to `population` that are new; fewer where hardly any are left."""
    fresh: dict[Genes, None] = {}
    for _ in range(20 * population):
        genes = _child(parents, sizes, mutation, random)
        if genes not in known and len(fresh) < population:
            fresh[genes] = None
    return list(fresh)


def _child(
    parents: Sequence[Genes], sizes: Sequence[int], mutation: float, random: Random
) -> Genes:
    """Of two different parents; where there are none, at random."""
    uniform = tuple(random.randrange(size) for size in sizes)
    if len(parents) < 2:
        return uniform
    crossed = (random.choice(both) for both in zip(*random.sample(parents, 2), strict=True))
    return tuple(
        new if random.random() < mutation else old
        for new, old in zip(uniform, crossed, strict=True)
    )


def _by_tensor(tensors: Sequence[DagTensor], genes: Genes) -> list[Genes]:
    rest, rows = list(genes), []
    for tensor in tensors:
        rows.append(tuple(rest[: tensor.ndim]))
        del rest[: tensor.ndim]
    return rows
