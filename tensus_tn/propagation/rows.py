"""Which rows of every state matter, for some rows of the sink: so that only these are computed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from tensus_tn._torch_modes import is_mapped, unwrapped
from tensus_tn.dag import Dag, Edge
from tensus_tn.propagation.node_ids import require_ids
from tensus_tn.propagation.segments import Segments

_Plan = TypeVar("_Plan")
_MOST_PLANS = 16  # of one graph, the longest unused going first


@dataclass(frozen=True, eq=False, repr=False)
class RowPlan:
    """What `propagate_dag(..., rows=plan)` needs to know; made by `RelationGraph.plan_rows`.

    A row of the sink depends on those rows of earlier states from which the links' relations lead
    to it. With a support, rows that the source can't reach are left out too: they are zero. What the
    passes over the graph read of it is copied at the first use, and kept as long as the plan.

    Attributes:
        dag: The states and their links.
        num_nodes: The nodes of the graph.
        chosen: For every link and relation, whether the link uses it; None if links use all.
        needed: The rows of every state that matter, ascending, in the order of `dag.nodes`.
        position: Where each wanted row stands among those of the sink (B,); None if they are wanted
            in their order, each once.
        pattern: What it was made from: the graph's structure and its self-loops.
        maps: Of a graph on a GPU, where the nodes stand in the states: see `row_maps`.

    Example:
        >>> from tensus_tn import RelationGraph
        >>> g = RelationGraph.from_edge_index({"A": torch.tensor([[0, 1, 2], [1, 2, 3]])}, 4)
        >>> plan = g.plan_rows(Dag.path(2), torch.tensor([3]))  # 1 -> 2 -> 3
        >>> plan
        RowPlan(1 row of the sink; of 4 nodes, the states need 1, 1, 1)
        >>> [rows.tolist() for rows in plan.needed]
        [[1], [2], [3]]
    """

    dag: Dag
    num_nodes: int
    chosen: tuple[int, ...] | None
    needed: tuple[Tensor, ...]
    position: Tensor | None
    pattern: tuple[Tensor | None, ...]
    maps: Tensor | None = None

    def operands(self) -> list[Tensor]:
        """What the operators take as `needed`: the rows, then any `maps`."""
        return [*self.needed, *(() if self.maps is None else (self.maps,))]

    def fits(self, pattern: Sequence[Tensor | None]) -> bool:
        """Whether a graph with this pattern has the same edges; at once, if it has the same tensors."""
        return all(map(_same_pattern, self.pattern, pattern))

    @property
    def num_rows(self) -> int:
        """The wanted rows of the sink, as often as they are named."""
        return len(self.needed[-1] if self.position is None else self.position)

    def select(self, sink: Tensor) -> Tensor:
        """The wanted rows (B, ...) of the sink, given those that are stored."""
        return sink if self.position is None else sink.index_select(0, self.position)

    def __repr__(self) -> str:
        noun = "row" if self.num_rows == 1 else "rows"
        sizes = ", ".join(str(len(rows)) for rows in self.needed)
        return (
            f"RowPlan({self.num_rows} {noun} of the sink; of {self.num_nodes} nodes, "
            f"the states need {sizes})"
        )


class Plans(Generic[_Plan]):
    """The plans of one graph, kept for the next call; a copy of the graph starts without any."""

    def __init__(self) -> None:
        self._plans: OrderedDict[Hashable, _Plan] = OrderedDict()

    def fetch(self, key: Hashable, make: Callable[[], _Plan]) -> _Plan:
        """The plan of this key, made if there is none."""
        plan = self._plans.pop(key, None)
        if plan is None:
            plan = make()
        self._plans[key] = plan
        while len(self._plans) > _MOST_PLANS:
            self._plans.pop(next(iter(self._plans)), None)
        return plan

    def clear(self) -> None:
        """Forget all of them."""
        self._plans.clear()

    def __reduce__(self) -> tuple[Any, ...]:
        return Plans, ()


def _same_pattern(a: Tensor | None, b: Tensor | None) -> bool:
    """Equal ids, or values that are zero in the same places."""
    if a is b or a is None or b is None:
        return a is b
    if a.shape != b.shape or a.device != b.device:
        return False
    if a.is_floating_point():
        return torch.equal(a != 0, b != 0)
    return torch.equal(a.long(), b.long())


def as_ids(what: str, rows: Tensor, num_nodes: int) -> Tensor:
    """Ids (B,) in int64, from these or from a mask (N,)."""
    if not isinstance(rows, Tensor):
        raise TypeError(f"{what} must be a tensor, got {type(rows).__name__}")
    if is_mapped(rows):
        raise ValueError(
            f"{what} can't be mapped by vmap: how many there are must not depend on it"
        )
    rows = unwrapped(rows)
    if rows.dtype == torch.bool:
        if tuple(rows.shape) != (num_nodes,):
            raise ValueError(f"{what}: a mask must have shape ({num_nodes},), got {rows.shape}")
        return rows.nonzero().flatten()
    if rows.dim() != 1:
        raise ValueError(f"{what} must have shape (B,), got {tuple(rows.shape)}")
    return require_ids(what, rows, num_nodes).contiguous()


def digest(ids: Tensor | None) -> bytes | None:
    """A short key for the contents of a tensor."""
    return None if ids is None else blake2b(ids.cpu().numpy().tobytes(), digest_size=16).digest()


def used_relations(
    names: Sequence[str], dag: Dag, choices: Mapping[Edge, Sequence[str]]
) -> list[int]:
    """For every edge of the dag and every relation, whether the edge uses it: 1 or 0."""
    if len(choices) != sum(edge in choices for edge in dag.edges):
        unknown = [edge for edge in choices if edge not in dag.edges]
        raise ValueError(f"choices for edges that the dag does not have: {unknown}")
    chosen = []
    for edge in dag.edges:
        used = choices.get(edge, names)
        if isinstance(used, str):
            raise TypeError(f"choices[{edge!r}] must be names of relations, got the text {used!r}")
        if strange := [name for name in used if name not in names]:
            raise ValueError(f"choices[{edge!r}]: {strange} are not among {list(names)}")
        chosen += [int(name in used) for name in names]
    return chosen


def ends(dag: Dag) -> tuple[list[int], list[int]]:
    """The numbers of the states at the tails and at the heads of all edges."""
    number = {node: k for k, node in enumerate(dag.nodes)}
    return [number[tail] for tail, _ in dag.edges], [number[head] for _, head in dag.edges]


def row_maps(needed: Sequence[Tensor], num_nodes: int) -> Tensor:
    """The row of every node in every state, (states, N), as CUDA kernels take them; -1: none.

    Example:
        >>> row_maps([torch.tensor([0, 2]), torch.tensor([2])], 3)  # the source is stored whole
        tensor([[ 0, -1,  2],
                [-1, -1,  0]])
    """
    maps = needed[0].new_full((len(needed), num_nodes), -1)
    for k, rows in enumerate(needed):
        maps[k, rows.long()] = rows if k == 0 else torch.arange(len(rows)).to(rows)
    return maps


def needed_rows(
    rows: Tensor,
    support: Tensor | None,
    loop: Tensor | None,
    seg_loop: Tensor | None,
    forward: Sequence[Tensor],
    backward: Sequence[Tensor],
    tails: Sequence[int],
    heads: Sequence[int],
    chosen: Sequence[int] | None,
    states: int,
    relations: int,
) -> list[Tensor]:
    """The operator `tensus_tn::needed_rows` in plain PyTorch; see `csrc/cpu/needed.h`."""
    graph = Segments(*forward[:4])
    row, rel, col = graph.seg_row()[graph.edge_seg()], graph.seg_rel[graph.edge_seg()], graph.col
    nodes, device = graph.num_rows, col.device
    flags = torch.ones(len(tails), relations, dtype=torch.bool, device=device)
    if chosen is not None:
        flags = torch.tensor(chosen, dtype=torch.bool, device=device).reshape(len(tails), relations)
    has_loop = torch.zeros(relations, dtype=torch.bool, device=device)
    if loop is not None:
        has_loop |= loop != 0
    if seg_loop is not None:
        has_loop[graph.seg_rel[seg_loop != 0].long()] = True

    def walk(marks: Tensor, edge: int, start: Tensor, end: Tensor) -> Tensor:
        """The nodes that the relations of an edge of the DAG lead to, from marked ones."""
        used = flags[edge]
        reached = marks & bool((used & has_loop).any())
        reached[end[used[rel.long()] & marks[start.long()]].long()] = True
        return reached

    possible = torch.ones(states, nodes, dtype=torch.bool, device=device)
    if support is not None:
        possible[:] = False
        possible[0, support] = True
        for j in range(states):
            for e in (e for e, tail in enumerate(tails) if tail == j):
                possible[heads[e]] |= walk(possible[j], e, col, row)
    needed = torch.zeros_like(possible)
    possible[-1] = True
    needed[-1, rows] = True
    for k in reversed(range(states)):
        needed[k] &= possible[k]
        for e in (e for e, head in enumerate(heads) if head == k):
            needed[tails[e]] |= walk(needed[k], e, row, col)
    return [marks.nonzero().flatten().to(col.dtype) for marks in needed]
