"""Filtered ranking: where the answer of a query stands among all entities, and how ties count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

Ties = Literal["random", "optimistic", "pessimistic", "mean"]
TIES: tuple[Ties, ...] = get_args(Ties)


@dataclass(frozen=True, eq=False, repr=False)
class Ranking:
    """The ranks of answers, one for each query.

    Entities that have the same score as the answer tie with it, above all those that no rule reaches.
    `ties` says where the answer then stands among them: at a random place, first (`"optimistic"`,
    which flatters), last (`"pessimistic"`), or in the middle (`"mean"`).

    Attributes:
        relation: (Q,), from `num_relations` on those that ask for the head.
        higher: (Q,), how many entities score higher than the answer.
        equal: (Q,), how many others have the same score.
        relations: The names of the relations.
        ties: How ties count where nothing else is said.
        seed: Of the random places.

    Example:
        >>> ranking = Ranking(torch.tensor([0, 1]), torch.tensor([0, 1]), torch.tensor([0, 2]), ("r",))
        >>> ranking.ranks("optimistic").tolist(), ranking.ranks("pessimistic").tolist()
        ([1.0, 2.0], [1.0, 4.0])
        >>> ranking.metrics("mean")["mrr"]
        0.6666666666666666
    """

    relation: Tensor
    higher: Tensor
    equal: Tensor
    relations: tuple[str, ...]
    ties: Ties = "random"
    seed: int = 0

    def __post_init__(self) -> None:
        check_ties(self.ties)

    def ranks(self, ties: Ties | None = None) -> Tensor:
        """The rank of every answer, (Q,) in float64; 1 is the best."""
        ties = check_ties(self.ties if ties is None else ties)
        first, equal = 1.0 + self.higher.double(), self.equal.double()
        if ties == "random":
            generator = torch.Generator().manual_seed(self.seed)
            place = torch.rand(len(first), generator=generator, dtype=torch.float64)
            return first + (place * (equal + 1)).floor()
        return first + {"optimistic": 0.0, "mean": 0.5, "pessimistic": 1.0}[ties] * equal

    def metrics(self, ties: Ties | None = None, *, ask: str | None = None) -> dict[str, float]:
        """MRR, mean rank, Hits@1, 3, 10; on request of queries for the `"head"` or `"tail"` alone."""
        ranks = self.ranks(ties)
        if ask is not None:
            if ask not in ("head", "tail"):
                raise ValueError(f"ask must be 'head' or 'tail', got {ask!r}")
            ranks = ranks[(self.relation >= len(self.relations)) == (ask == "head")]
        return _metrics(ranks)

    def per_relation(self, ties: Ties | None = None) -> dict[str, dict[str, float]]:
        """The metrics of every relation that was asked for, both directions together."""
        ranks, relation = self.ranks(ties), self.relation % len(self.relations)
        asked = relation.unique().tolist()
        return {self.relations[r]: _metrics(ranks[relation == r]) for r in asked}

    @property
    def mrr(self) -> float:
        """The mean of `1 / rank`."""
        return self.metrics()["mrr"]

    def to_dict(self) -> dict[str, Any]:
        """All metrics, under every rule for ties and in both directions apart, as JSON takes them."""
        return {
            "queries": len(self.relation),
            "ties": self.ties,
            **self.metrics(),
            "tail": self.metrics(ask="tail"),
            "head": self.metrics(ask="head"),
            "by ties": {ties: self.metrics(ties) for ties in TIES},
        }

    def __str__(self) -> str:
        rows = [(f"ties {ties}", self.metrics(ties)) for ties in TIES]
        rows += [(f"{ask}s, ties {self.ties}", self.metrics(ask=ask)) for ask in ("tail", "head")]
        lines = [f"{'':24s}{'MRR':>8s}{'MR':>10s}{'H@1':>8s}{'H@3':>8s}{'H@10':>8s}"]
        for name, m in rows:
            hits = "".join(f"{m[f'hits@{k}']:8.3f}" for k in (1, 3, 10))
            lines.append(f"{name:24s}{m['mrr']:8.3f}{m['mr']:10.1f}{hits}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        m = self.metrics()
        return (
            f"Ranking({len(self.relation)} queries, {self.ties} ties: MRR {m['mrr']:.4f}, "
            f"Hits@1 {m['hits@1']:.3f}, @3 {m['hits@3']:.3f}, @10 {m['hits@10']:.3f})"
        )


def check_ties(ties: str) -> Ties:
    """One of the rules for ties, or an error that lists them."""
    if ties not in TIES:
        raise ValueError(f"ties must be one of {TIES}, got {ties!r}")
    return ties


def _metrics(ranks: Tensor) -> dict[str, float]:
    if not len(ranks):
        return dict.fromkeys(("mrr", "mr", "hits@1", "hits@3", "hits@10"), float("nan"))
    hits = {f"hits@{k}": float((ranks <= k).double().mean()) for k in (1, 3, 10)}
    return {"mrr": float((1 / ranks).mean()), "mr": float(ranks.mean()), **hits}
