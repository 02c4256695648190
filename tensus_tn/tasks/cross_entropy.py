"""The cross-entropy method over meta-graphs: draw, score, refit the tensor to the best, repeat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from tensus_tn._arguments import check_size
from tensus_tn.fitting.em import fit_em
from tensus_tn.network.structure import Rank
from tensus_tn.network.tensor import DagTensor
from tensus_tn.nn import MetaGraph

#: One choice for each edge of a tensor's DAG.
Row = tuple[int, ...]


class Candidate(NamedTuple):
    """A meta-graph for each network, and its score: the lower, the better."""

    score: float
    meta_graphs: tuple[MetaGraph, ...]


def cross_entropy_search(
    tensors: Sequence[DagTensor],
    score: Callable[[Sequence[MetaGraph]], float],
    *,
    rounds: int,
    batch: int,
    seed: int,
    smoothing: float = 0.2,
) -> tuple[list[Candidate], list[list[float]]]:
    """Find meta-graphs of low score with at most `rounds * batch` calls of `score`.

    The cross-entropy method, with a `DagTensor` as the distribution. The first candidates are drawn
    uniformly. After each round every tensor is fitted by maximum likelihood to the best of all
    candidates so far, a quarter of a batch but at least four, and its cores are mixed with a share
    `smoothing` of the uniform distribution, so that no choice dies out. The next round is drawn from
    these tensors.

    Args:
        tensors: One for each network whose meta-graph is searched. They give the shape of the
            distributions (DAG, named choices, ranks and ties); their parameters are not used.
        score: Takes one meta-graph for each tensor; for example the validation loss of a network
            that is trained briefly over them.
        rounds: How often the tensors are fitted.
        batch: New candidates in each round; fewer where hardly any are left.
        seed: For all draws.
        smoothing: Between 0 and 1.

    Returns:
        All candidates, best first, and the scores of every round.

    Example:
        >>> from tensus_tn import Dag
        >>> dag = Dag.path(3)
        >>> tensor = DagTensor(dag, dict.fromkeys(dag.edges, ["A", "B", "C", "D"]), rank=2)
        >>> def mistakes(meta_graphs):  # how many links do not choose B
        ...     return sum(name != "B" for name in meta_graphs[0].relations.values())
        >>> found, history = cross_entropy_search([tensor], mistakes, rounds=3, batch=12, seed=0)
        >>> found[0].score, [len(scores) for scores in history]
        (0, [12, 12, 12])
    """
    check_size("rounds", rounds)
    check_size("batch", batch)
    if not tensors:
        raise ValueError("a search needs at least one tensor, got none")
    if not 0 <= smoothing <= 1:
        raise ValueError(f"smoothing must be in [0, 1], got {smoothing}")
    generator = torch.Generator().manual_seed(seed)
    current = [_like(tensor, 0.0, generator) for tensor in tensors]
    scores: dict[tuple[Row, ...], float] = {}
    history = []
    for _ in range(rounds):
        fresh = _fresh(current, scores, batch, generator)
        for rows in fresh:
            scores[rows] = score(chosen_meta_graphs(tensors, rows))
        history.append([scores[rows] for rows in fresh])
        elite = sorted(scores, key=lambda rows: scores[rows])[: max(4, batch // 4)]
        current = [
            _refit(tensor, [rows[t] for rows in elite], smoothing, generator)
            for t, tensor in enumerate(tensors)
        ]
    best = sorted(scores, key=lambda rows: scores[rows])
    return [Candidate(scores[rows], chosen_meta_graphs(tensors, rows)) for rows in best], history


def _fresh(
    tensors: Sequence[DagTensor],
    known: dict[tuple[Row, ...], float],
    batch: int,
    generator: torch.Generator,
) -> list[tuple[Row, ...]]:
    """Up to `batch` candidates that are new; fewer where the distribution hardly has any."""
    fresh: dict[tuple[Row, ...], None] = {}
    for _ in range(20):
        drawn = [tensor.sample(batch, generator=generator).tolist() for tensor in tensors]
        for rows in zip(*drawn, strict=True):
            candidate = tuple(tuple(row) for row in rows)
            if candidate not in known and len(fresh) < batch:
                fresh[candidate] = None
    return list(fresh)


def _refit(
    tensor: DagTensor, elite: Sequence[Row], smoothing: float, generator: torch.Generator
) -> DagTensor:
    """The best of three fits, as the likelihood has local maxima; then mixed with uniform cores."""
    index = torch.tensor(elite)
    fits = [
        fit_em(index, _like(tensor, 1.0, generator), max_sweeps=50, tol=1e-4, progress=False)
        for _ in range(3)
    ]
    fitted = max(fits, key=lambda fit: fit[1].log_likelihood)[0]
    with torch.no_grad():
        for logits in fitted.parameters():
            share = smoothing / len(logits)
            logits.copy_(((1 - smoothing) * logits.softmax(0) + share).log())
    return fitted


def _like(tensor: DagTensor, init_scale: float, generator: torch.Generator) -> DagTensor:
    """A fresh tensor of the same shape, ranks and ties."""
    ranks = tensor.structure.ranks
    if tensor.ties == "global" or not ranks:
        rank: Rank = ranks[0] if ranks else 1
    else:
        rank = dict(zip(tensor.dag.inner, ranks, strict=True))
    return DagTensor(
        tensor.dag,
        {edge: list(names) for edge, names in tensor.choice_names.items()},
        rank,
        ties=tensor.ties,
        init_scale=init_scale,
        generator=generator,
    )


def chosen_meta_graphs(tensors: Sequence[DagTensor], rows: Sequence[Row]) -> tuple[MetaGraph, ...]:
    """The meta-graph of each tensor that a row of choices stands for."""
    return tuple(
        MetaGraph(
            tensor.dag,
            {
                edge: tensor.choice_names[edge][choice]
                for edge, choice in zip(tensor.dag.edges, row, strict=True)
            },
        )
        for tensor, row in zip(tensors, rows, strict=True)
    )
