"""A knowledge graph whose rules need rank 2: with rank 1, half of the answers can't be found."""

from __future__ import annotations

import numpy as np

from tensus_tn._arguments import check_size
from tensus_tn.rules.knowledge_graph import KnowledgeGraph


def planted_rules(num_chains: int = 400, *, kinds: int = 4, seed: int = 0) -> KnowledgeGraph:
    """`r(x, y) <- a_k(x, z), b_k(z, y)` for `k = 1 .. kinds`: the second step depends on the first.

    Every start x has one relation `a_k` to its own z, which has a relation `b_j` to an entity of its
    own for every j. The answer of `r` is the one that `b_k` leads to, with the k of the first step.

    No rank-1 model over a path of two links ranks more than two kinds right, whatever its weights:
        1. The candidates of a start of kind k score `u_k v_j`, where `u_k` is the weight of `a_k` in
           the first link and `v_j` that of `b_j` in the second. Nothing else tells them apart.
        2. If `u_k > 0`, the answer is first only if `v_k > v_j` for all other j, which holds for one k
           at most; if `u_k < 0`, only if `v_k` is the smallest, for one k; if `u_k = 0`, all tie.
        3. So at most `2 / kinds` of the queries for the tail have their answer alone in first place.
    Rank 2 ranks all of them right: take `u_k = v_k` as `kinds` points on a circle.

    Args:
        num_chains: Starts.
        kinds: Pairs of relations, three or more.
        seed: Of the kinds of the starts, and of the split of `r` (three fifths, one, one).

    Example:
        >>> planted_rules(num_chains=20)
        KnowledgeGraph(120 entities, 9 relations; train 112, valid 4, test 4)
    """
    check_size("num_chains", num_chains)
    if kinds < 3:
        raise ValueError(
            f"two kinds are within the reach of rank 1: expected 3 or more, got {kinds}"
        )
    rng = np.random.default_rng(seed)
    kind = rng.permutation(np.arange(num_chains) % kinds) + 1
    chains, answers = [], []
    for n, k in enumerate(kind.tolist()):
        chains.append((f"x{n}", f"a{k}", f"z{n}"))
        chains += [(f"z{n}", f"b{j}", f"y{n}_{j}") for j in range(1, kinds + 1)]
        answers.append((f"x{n}", "r", f"y{n}_{k}"))
    first, second = 3 * num_chains // 5, 4 * num_chains // 5
    train, valid, test = answers[:first], answers[first:second], answers[second:]
    names = ["r", *(f"{step}{k}" for step in "ab" for k in range(1, kinds + 1))]
    return KnowledgeGraph.from_triples(chains + train, valid, test, relations=names)
