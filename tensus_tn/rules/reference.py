"""Walks in plain PyTorch, on dense states: what the kernel is compared with, and runs without it.

    H_k[n, v, q] = sum over links (j, k), operators i, p of W_jk[r_n, i, p, q] (A^i H_j[n, :, p])[v]

for queries `n` with relation `r_n`, from the one-hot `H_0`; the edge of a query's own fact is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def scores(
    w: Tensor,
    popularity: Tensor | None,
    graph: Sequence[Tensor],
    popular: Sequence[Tensor],
    queries: Sequence[Tensor],
    ranks: Sequence[int],
    tails: Sequence[int],
    heads: Sequence[int],
    relations: int,
    width: int = 1,
) -> Tensor:
    """The scores of all entities, (Q, N); differentiable in `w` and `popularity`."""
    ptr, target, op, fact, value = graph
    relation, start, answer, own, *_ = queries
    Q, N = len(relation), len(ptr) - 1
    source = torch.repeat_interleave(torch.arange(N), ptr.diff())
    seen = value * ((fact < 0) | (fact != own[:, None]))  # (Q, E)
    states = [w.new_zeros(Q, N, rank) for rank in ranks]
    states[0][torch.arange(Q), start] = 1.0
    for tail, head, weight in sorted(
        zip(tails, heads, _weights(w, ranks, tails, heads, relations), strict=True),
        key=lambda link: link[1],
    ):
        moved = torch.einsum("nep,nepq->neq", states[tail][:, source], weight[relation][:, op])
        states[head] = states[head].index_add(1, target, seen[:, :, None] * moved)
    total = states[-1][:, :, 0]
    if popularity is None:
        return total
    counts = w.new_zeros(relations, N)
    of_relation = torch.repeat_interleave(torch.arange(relations), popular[0].diff())
    counts[of_relation, popular[1].long()] = popular[2].to(w.dtype)
    counts = counts[relation]
    counts[torch.arange(Q), answer] -= (own >= 0).to(w.dtype)
    return total + popularity[relation][:, None] * counts.log1p()


def losses(x: Tensor, queries: Sequence[Tensor], exponential: bool, floor: float) -> Tensor:
    """`log sum_v f(x_v) - log f(x_answer)` (Q,), `v` without other known answers.

    `f(x)` is `exp(x)`, or `x + floor` for scores that are not negative.
    """
    answer = queries[2]
    log_f = x if exponential else (x + floor).log()
    competing = log_f.masked_fill(others(queries, x.shape[1]), -torch.inf)
    return competing.logsumexp(1) - log_f.gather(1, answer[:, None])[:, 0]


def others(queries: Sequence[Tensor], num_entities: int) -> Tensor:
    """The known answers of every query except its answer, as a mask (Q, N)."""
    _, _, answer, _, known_ptr, known = queries
    mask = torch.zeros(len(answer), num_entities, dtype=torch.bool)
    row = torch.repeat_interleave(torch.arange(len(answer)), known_ptr.diff())
    mask[row, known] = True
    mask[torch.arange(len(answer)), answer] = False
    return mask


def rule_loss(
    w: Tensor,
    popularity: Tensor | None,
    share: Tensor,
    graph: list[Tensor],
    popular: list[Tensor],
    queries: list[Tensor],
    ranks: Sequence[int],
    tails: Sequence[int],
    heads: Sequence[int],
    relations: int,
    width: int,
    exponential: bool,
    floor: float,
    need_gradient: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The losses (Q,), and the gradients of `share @ losses`, empty where not needed."""
    with torch.enable_grad():
        w = w.detach().requires_grad_()
        weight = None if popularity is None else popularity.detach().requires_grad_()
        x = scores(w, weight, graph, popular, queries, ranks, tails, heads, relations)
        loss = losses(x, queries, exponential, floor)
        inputs = [w] if weight is None else [w, weight]
        grads = torch.autograd.grad(share @ loss, inputs) if need_gradient else ()
    empty = w.new_empty(0)
    return loss.detach(), *grads, *[empty] * (2 - len(grads))  # type: ignore[return-value]


def rule_ranks(w: Tensor, *walk: object) -> tuple[Tensor, Tensor]:
    """How many entities score higher than the answer, and how many others the same, (Q,) each."""
    queries: Sequence[Tensor] = walk[3]  # type: ignore[assignment]
    x = scores(w, *walk)  # type: ignore[arg-type]
    x = x.masked_fill(others(queries, x.shape[1]), -torch.inf)
    of_answer = x.gather(1, queries[2][:, None])
    return (x > of_answer).sum(1), (x == of_answer).sum(1) - 1


def rule_costs(w: Tensor, *walk: object) -> Tensor:
    """The edges that every query looks at: here, all of them in every link."""
    _, graph, _, queries, _, tails, *_ = walk
    edges = len(tails) * len(graph[1])  # type: ignore[arg-type, index]
    return torch.full_like(queries[0], edges)  # type: ignore[index]


def _weights(
    w: Tensor,
    ranks: Sequence[int],
    tails: Sequence[int],
    heads: Sequence[int],
    relations: int,
) -> list[Tensor]:
    """The weights (relations, operators, P, Q) of every link."""
    sizes = [ranks[tail] * ranks[head] for tail, head in zip(tails, heads, strict=True)]
    operators = w.numel() // (relations * sum(sizes))
    parts = w.split([relations * operators * size for size in sizes])
    return [
        part.view(relations, operators, ranks[tail], ranks[head])
        for part, tail, head in zip(parts, tails, heads, strict=True)
    ]
