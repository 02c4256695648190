"""The operators of walks on a knowledge graph, completed for torch, and the functions that call them.

The extension defines them for the CPU: a walk touches only what it reaches. Here they get a plain
PyTorch implementation for other devices and for where there is no extension, shapes for tracing, and
a derivative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tensus_tn.dag import Dag, Edge
from tensus_tn.propagation import extension
from tensus_tn.rules import reference
from tensus_tn.rules.walks import Queries, WalkGraph

_WALK = (
    "Tensor[] graph, Tensor[] popular, Tensor[] queries, int[] ranks, int[] tails, int[] heads, "
    "int relations, int width"
)
# As in csrc/ops_rules.cpp, where they are defined if the extension is there (a test compares).
SCHEMAS = {
    "rule_loss": f"(Tensor w, Tensor? popularity, Tensor share, {_WALK}, bool exponential, "
    "float floor, bool need_gradient) -> (Tensor, Tensor, Tensor)",
    "rule_scores": f"(Tensor w, Tensor? popularity, {_WALK}) -> Tensor",
    "rule_ranks": f"(Tensor w, Tensor? popularity, {_WALK}) -> (Tensor, Tensor)",
    "rule_costs": f"(Tensor w, Tensor? popularity, {_WALK}) -> Tensor",
}
WIDTH = 16  # queries that can share a frontier, as in csrc/cpu/frontier.h

_library = torch.library.Library("tensus_tn", "FRAGMENT")
if extension._C is None:
    for _name, _schema in SCHEMAS.items():
        _library.define(_name + _schema)
_library.impl("rule_loss", reference.rule_loss, "CompositeExplicitAutograd")
_library.impl("rule_scores", reference.scores, "CompositeExplicitAutograd")
_library.impl("rule_ranks", reference.rule_ranks, "CompositeExplicitAutograd")
_library.impl("rule_costs", reference.rule_costs, "CompositeExplicitAutograd")


@torch.library.register_fake("tensus_tn::rule_loss", lib=_library)
def _(w: Tensor, popularity: Tensor | None, share: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    need_gradient = rest[-1]
    loss, dw = torch.empty_like(share), w.new_empty(w.shape[0] if need_gradient else 0)
    if popularity is None or not need_gradient:
        return loss, dw, w.new_empty(0)
    return loss, dw, torch.empty_like(popularity)


@torch.library.register_fake("tensus_tn::rule_scores", lib=_library)
def _(w: Tensor, popularity: Tensor | None, graph: list[Tensor], *rest: Any) -> Tensor:
    _, queries, *_ = rest
    return w.new_empty(len(queries[0]), len(graph[0]) - 1)


@torch.library.register_fake("tensus_tn::rule_ranks", lib=_library)
def _(w: Tensor, popularity: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor]:
    queries = rest[2]
    return torch.empty_like(queries[0]), torch.empty_like(queries[0])


@torch.library.register_fake("tensus_tn::rule_costs", lib=_library)
def _(w: Tensor, popularity: Tensor | None, *rest: Any) -> Tensor:
    return torch.empty_like(rest[2][0])


class _Loss(torch.autograd.Function):
    """`share @ losses`; its gradient is found in the same walk, so no state is kept."""

    @staticmethod
    def forward(
        ctx: Any, w: Tensor, popularity: Tensor | None, share: Tensor, *rest: Any
    ) -> Tensor:
        losses, dw, dpopularity = torch.ops.tensus_tn.rule_loss(w, popularity, share, *rest)
        ctx.save_for_backward(dw, dpopularity)
        return share @ losses  # type: ignore[no-any-return]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        dw, dpopularity = ctx.saved_tensors
        of_popularity = grad * dpopularity if ctx.needs_input_grad[1] else None
        return (grad * dw, of_popularity, *[None] * 12)


@dataclass(frozen=True, eq=False)
class Walker:
    """Walks of queries along a DAG over a graph.

    Args:
        graph: The edges.
        dag: Its source is where a query starts, its sink holds the scores.
        ranks: The rank of every node of `dag`, in the order of `dag.nodes`; 1 at both ends.
        width: How many queries share a frontier: 1 or `WIDTH`.
    """

    graph: WalkGraph
    dag: Dag
    ranks: Sequence[int]
    width: int = 1

    def loss(
        self,
        weights: dict[Edge, Tensor],
        popularity: Tensor | None,
        queries: Queries,
        *,
        floor: float | None = None,
    ) -> Tensor:
        """The mean over queries of `log sum_v f(x_v) - log f(x_answer)`.

        Args:
            weights: (2R, C, d_j, d_k) for every edge `(j, k)` of the DAG.
            popularity: (2R,), what `log(1 + n)` counts in the score of an entity that is the answer
                of `n` facts; or None.
            queries: The queries; other known answers do not count in the sum.
            floor: `f(x) = x + floor`, for scores that are not negative; `exp(x)` when None.
        """
        w = self._flat(weights)
        count = max(len(queries.relation), 1)
        share = w.new_full((len(queries.relation),), 1 / count)
        learned = w.requires_grad or (popularity is not None and popularity.requires_grad)
        need_gradient = learned and torch.is_grad_enabled()
        walk = self._walk(w, popularity, queries)
        loss: Tensor = _Loss.apply(
            w, popularity, share, *walk, floor is None, floor or 0.0, need_gradient
        )
        return loss

    def scores(
        self, weights: dict[Edge, Tensor], popularity: Tensor | None, queries: Queries
    ) -> Tensor:
        """The scores of all entities, (Q, N)."""
        w = self._flat(weights)
        walk = self._walk(w, popularity, queries)
        return torch.ops.tensus_tn.rule_scores(w, popularity, *walk)  # type: ignore[no-any-return]

    def ranks_of(
        self, weights: dict[Edge, Tensor], popularity: Tensor | None, queries: Queries
    ) -> tuple[Tensor, Tensor]:
        """How many entities score higher than the answer, and how many others the same, (Q,) each."""
        w = self._flat(weights)
        walk = self._walk(w, popularity, queries)
        return torch.ops.tensus_tn.rule_ranks(w, popularity, *walk)  # type: ignore[no-any-return]

    def costs(self, weights: dict[Edge, Tensor], queries: Queries) -> Tensor:
        """How many edges every query looks at, (Q,); queries of one block share theirs."""
        w = self._flat(weights)
        return torch.ops.tensus_tn.rule_costs(w, None, *self._walk(w, None, queries))  # type: ignore[no-any-return]

    def _flat(self, weights: dict[Edge, Tensor]) -> Tensor:
        return torch.cat([weights[edge].reshape(-1) for edge in self.dag.edges])

    def _walk(self, w: Tensor, popularity: Tensor | None, queries: Queries) -> list[Any]:
        """What the operators take after `w` and `popularity`, on the device of `w`."""
        number = {node: k for k, node in enumerate(self.dag.nodes)}
        return [
            [x.to(w.device) for x in self.graph.edges],
            [] if popularity is None else [x.to(w.device) for x in self.graph.popular],
            [x.to(w.device) for x in queries],
            list(self.ranks),
            [number[tail] for tail, _ in self.dag.edges],
            [number[head] for _, head in self.dag.edges],
            2 * self.graph.num_relations,
            self.width,
        ]
