"""Which passes over the graph serve the edges of a DAG: the propagation's contraction plan.

Forward, `w_jk A H_j` can be had in two ways. *Gather, then mix*: one sparse pass at the tail `j`, of width
`d_j`, feeds all its heads. *Mix, then gather*: at the head `k`, the states of all its tails are mixed
relation by relation and one sparse pass of width `d_k` gathers the result. Every edge needs a pass at one
of its ends, so a set of passes is a vertex cover of the bipartite graph of tails and heads, and the
cheapest is a cover of minimum weight, which is a minimum cut. Backward, the roles of the ends are swapped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

#: Reading a row in order costs this much of reading one at random.
_SEQUENTIAL = 0.5


@dataclass(frozen=True)
class PassCosts:
    """What a pass costs, in rows of F numbers read: `nodes` N, `edges` E, `relations` C."""

    nodes: int
    edges: int
    relations: int

    def gather_mix(self, rank: int) -> float:
        """One pass over all edges."""
        return self.edges * rank

    def mix_gather(self, rank: int, others: Sequence[int]) -> float:
        """For every relation: read the other states, write the mix; then one pass over all edges."""
        dense = self.relations * self.nodes * (rank + sum(others))
        return self.edges * rank + _SEQUENTIAL * dense


def passes(
    costs: PassCosts, ranks: Sequence[int], tails: Sequence[int], heads: Sequence[int]
) -> tuple[list[int], list[int]]:
    """For every edge, whether it is mixed first: forward (at its head) and backward (at its tail).

    Example:
        >>> passes(PassCosts(nodes=100, edges=10_000, relations=3), [8, 1], [0], [1])
        ([1], [0])
    """
    plans = _passes(costs, tuple(ranks), tuple(tails), tuple(heads))
    return list(plans[0]), list(plans[1])


@lru_cache(maxsize=256)
def _passes(
    costs: PassCosts, ranks: tuple[int, ...], tails: tuple[int, ...], heads: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    edges = list(zip(tails, heads, strict=True))
    tail_ranks = {k: [ranks[j] for j, head in edges if head == k] for k in heads}
    head_ranks = {j: [ranks[k] for tail, k in edges if tail == j] for j in tails}
    gather = {v: costs.gather_mix(rank) for v, rank in enumerate(ranks)}
    forward = min_weight_cover(
        edges, gather, {k: costs.mix_gather(ranks[k], tail_ranks[k]) for k in heads}
    )
    # Mixed first, an edge's gradient of w needs a gather of the tail's state besides.
    backward = min_weight_cover(
        [(k, j) for j, k in edges],
        gather,
        {j: gather[j] + costs.mix_gather(ranks[j], head_ranks[j]) for j in tails},
    )
    return (
        tuple(int(j not in forward) for j, _ in edges),
        tuple(int(k not in backward) for _, k in edges),
    )


def min_weight_cover(
    edges: Sequence[tuple[int, int]], left: Mapping[int, float], right: Mapping[int, float]
) -> set[int]:
    """The left nodes of a vertex cover of least weight; the right ones cover all other edges.

    A minimum cut between a source before the left nodes and a sink behind the right ones, by augmenting
    paths (the graphs have some tens of nodes).

    Example:
        >>> min_weight_cover([(0, 0), (0, 1), (1, 1)], {0: 1.0, 1: 5.0}, {0: 9.0, 1: 2.0})
        {0}
    """
    spare = {("l", u): left[u] for u, _ in edges} | {("r", v): right[v] for _, v in edges}
    flow = dict.fromkeys(edges, 0.0)

    def reachable() -> dict[tuple[str, int], tuple[str, int] | None]:
        """Nodes that more flow could reach, each with the one before it."""
        before: dict[tuple[str, int], tuple[str, int] | None] = {
            node: None for node, room in spare.items() if node[0] == "l" and room > 0
        }
        frontier = list(before)
        while frontier:
            side, at = frontier.pop()
            for u, v in edges:
                if side == "l" and u == at:
                    step = ("r", v)
                elif side == "r" and v == at and flow[u, v] > 0:
                    step = ("l", u)
                else:
                    continue
                if step not in before:
                    before[step] = (side, at)
                    frontier.append(step)
        return before

    while True:
        before = reachable()
        end = next((node for node in before if node[0] == "r" and spare[node] > 0), None)
        if end is None:
            return {u for u, _ in edges if ("l", u) not in before}
        path = [end]
        while (previous := before[path[-1]]) is not None:
            path.append(previous)
        path.reverse()
        steps = list(zip(path, path[1:], strict=False))
        room = min(
            spare[path[0]],
            spare[end],
            *(flow[b[1], a[1]] for a, b in steps if a[0] == "r"),
        )
        spare[path[0]] -= room
        spare[end] -= room
        for a, b in steps:
            if a[0] == "l":
                flow[a[1], b[1]] += room
            else:
                flow[b[1], a[1]] -= room
