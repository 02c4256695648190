"""Walks in plain PyTorch, on dense states: what the kernel is compared with, and what runs elsewhere.

    H_k[n, v, q] = sum over links (j, k), operators i, p of W_jk[r_n, i, p, q] (A^i H_j[n, :, p])[v]

for queries `n` with relation `r_n`, from the one-hot `H_0`; the edge of a query's own fact is left out.

It runs on any device, a few queries at a time: a link makes numbers for every query and edge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

_ROOM = 1 << 27  # numbers that a link may make at a time


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
    walk = (ranks, tails, heads, relations)
    return torch.cat(
        [
            _scores(w, popularity, graph, popular, part, *walk)
            for part in parts(queries, _room_of_a_query(graph, ranks))
        ]
    )


def _room_of_a_query(graph: Sequence[Tensor], ranks: Sequence[int]) -> int:
    return len(graph[1]) * max(ranks) ** 2


def parts(queries: Sequence[Tensor], room: int) -> Iterator[Sequence[Tensor]]:
    """Queries in parts that need no more than `_ROOM` numbers, where one needs `room`.

    Example:
        >>> from tensus_tn.rules.walks import Queries
        >>> ptr, known = torch.tensor([0, 1, 3, 3]), torch.arange(3)
        >>> q = Queries(*torch.zeros(4, 3, dtype=torch.long), ptr, known)
        >>> [(part[4].tolist(), part[5].tolist()) for part in parts(q, _ROOM // 2)]
        [([0, 1, 3], [0, 1, 2]), ([0, 0], [])]
    """
    count, size = len(queries[0]), max(1, _ROOM // room)
    if count <= size:
        yield queries
        return
    *each, ptr, known = queries
    for first in range(0, count, size):
        last = min(first + size, count)
        begin, end = int(ptr[first]), int(ptr[last])
        yield [*(x[first:last] for x in each), ptr[first : last + 1] - begin, known[begin:end]]


def _scores(
    w: Tensor,
    popularity: Tensor | None,
    graph: Sequence[Tensor],
    popular: Sequence[Tensor],
    queries: Sequence[Tensor],
    ranks: Sequence[int],
    tails: Sequence[int],
    heads: Sequence[int],
    relations: int,
) -> Tensor:
    ptr, target, op, fact, value = graph
    relation, start, answer, own, *_ = queries
    Q, N = len(relation), len(ptr) - 1
    source = _owners(ptr, len(target))
    row = torch.arange(Q, device=w.device)
    seen = value * ((fact < 0) | (fact != own[:, None]))  # (Q, E)
    states = [w.new_zeros(Q, N, rank) for rank in ranks]
    states[0][row, start] = 1.0
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
    counts[_owners(popular[0], len(popular[1])), popular[1].long()] = popular[2].to(w.dtype)
    counts = counts[relation]
    counts[row, answer] -= (own >= 0).to(w.dtype)
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
    mask = torch.zeros(len(answer), num_entities, dtype=torch.bool, device=answer.device)
    mask[_owners(known_ptr, len(known)), known] = True
    mask[torch.arange(len(answer), device=answer.device), answer] = False
    return mask


def _owners(ptr: Tensor, size: int) -> Tensor:
    """`k` at `ptr[k] .. ptr[k + 1]`, (size,)."""
    number = torch.arange(len(ptr) - 1, device=ptr.device)
    return torch.repeat_interleave(number, ptr.diff(), output_size=size)


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
    found: list[Tensor] = []
    w = w.detach().requires_grad_()
    weight = None if popularity is None else popularity.detach().requires_grad_()
    inputs = [w] if weight is None else [w, weight]
    grads = [torch.zeros_like(x) for x in inputs] if need_gradient else []
    for part in parts(queries, _room_of_a_query(graph, ranks)):
        done = sum(len(x) for x in found)
        with torch.set_grad_enabled(need_gradient):
            x = _scores(w, weight, graph, popular, part, ranks, tails, heads, relations)
            loss = losses(x, part, exponential, floor)
            total = share[done : done + len(loss)] @ loss
        found.append(loss.detach())
        if need_gradient:
            for grad, more in zip(grads, torch.autograd.grad(total, inputs), strict=True):
                grad += more
    empty = w.new_empty(0)
    return torch.cat(found), *grads, *[empty] * (2 - len(grads))  # type: ignore[return-value]


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
