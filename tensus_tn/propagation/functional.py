"""Sparse propagation over the relations of a graph: one edge, or a whole DAG of states."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, overload

import torch
from torch import Tensor

from tensus_tn.dag import Dag, Edge, Node
from tensus_tn.propagation import extension
from tensus_tn.propagation import operators as operators  # registers them
from tensus_tn.propagation.arguments import Arguments
from tensus_tn.propagation.gpu import check_gpu
from tensus_tn.propagation.graph_part import GraphPart, checking
from tensus_tn.propagation.groups import Groups
from tensus_tn.propagation.memory import is_out_of_memory, out_of_memory
from tensus_tn.propagation.relation_graph import RelationGraph
from tensus_tn.propagation.rows import RowPlan, as_ids, ends, used_relations

_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def propagate(
    graph: RelationGraph | GraphPart,
    h: Tensor,
    w: Tensor,
    *,
    groups: Tensor | Sequence[int] | None = None,
) -> Tensor:
    """`y[:, q] = sum_{i,p} w[i, p, q] A^i h[:, p]`, differentiable in `h`, `w` and the edge values.

    To any order, backward and forward: with `create_graph=True`, `torch.autograd.forward_ad` and the
    transforms of `torch.func`, `vmap` among them. `torch.compile` and `torch.export` work.

    Args:
        graph: `C` relations over `N` nodes; or the part of a `DistributedGraph` that is here.
        h: Features (N, P, F) in float32, float64, bfloat16 or float16; sums are float32 (float64
            for float64).
        w: Weights (C, P, Q), used in the type of the sums; with `groups`, (G, C, P, Q).
        groups: The group (F,) of each feature column, in [0, G) and in any order: column `f` has the
            weights `w[groups[f]]`. A group may be empty. One gather serves all groups. In a graph
            of `torch.compile`, give integers rather than a tensor.

    Returns:
        (N, Q, F), in the type of `h`.

    Example:
        >>> import scipy.sparse as sp
        >>> g = RelationGraph.from_scipy({"A": sp.csr_array([[0, 2], [1, 0]])}, identity=True)
        >>> h = torch.tensor([[1.0], [5.0]]).unsqueeze(1)  # (2, 1, 1)
        >>> w = torch.tensor([1.0, 0.5]).reshape(2, 1, 1)  # A + I / 2
        >>> propagate(g, h, w).flatten()
        tensor([10.5000,  3.5000])
        >>> two = torch.stack([w, 2 * w])  # other weights for every column
        >>> propagate(g, torch.cat([h, h], -1), two, groups=[0, 1])[:, 0]
        tensor([[10.5000, 21.0000],
                [ 3.5000,  7.0000]])
    """
    with checking(graph):
        _check_features(graph, h, "(N, P, F)")
        num_groups = None if groups is None else _num_groups(w, "w")
        _check_weights(w, num_groups, graph.num_relations, h.shape[1], None, graph.device)
        columns = Groups.of(groups, num_groups, h.shape[2])
    ranks, sizes = [h.shape[1], w.shape[-1]], columns.sizes
    return columns.restore(
        _run(graph, columns.sort(h), w.reshape(-1), ranks, [0], [1], None, sizes)[0]
    )


@overload
def propagate_dag(
    graph: RelationGraph | GraphPart,
    dag: Dag,
    h: Tensor,
    weights: Mapping[Edge, Tensor],
    *,
    choices: Mapping[Edge, Sequence[str]] | None = None,
    rows: Tensor | RowPlan | None = None,
    support: Tensor | None = None,
    groups: Tensor | Sequence[int] | None = None,
    return_states: Literal[False] = False,
) -> Tensor: ...
@overload
def propagate_dag(
    graph: RelationGraph | GraphPart,
    dag: Dag,
    h: Tensor,
    weights: Mapping[Edge, Tensor],
    *,
    choices: Mapping[Edge, Sequence[str]] | None = None,
    groups: Tensor | Sequence[int] | None = None,
    return_states: Literal[True],
) -> dict[Node, Tensor]: ...
def propagate_dag(
    graph: RelationGraph | GraphPart,
    dag: Dag,
    h: Tensor,
    weights: Mapping[Edge, Tensor],
    *,
    choices: Mapping[Edge, Sequence[str]] | None = None,
    rows: Tensor | RowPlan | None = None,
    support: Tensor | None = None,
    groups: Tensor | Sequence[int] | None = None,
    return_states: bool = False,
) -> Tensor | dict[Node, Tensor]:
    """All states of a DAG: `H_k[:, q] = sum_{j -> k} sum_{i,p} w_jk[i, p, q] A^i H_j[:, p]`.

    `A^i H_j` is the same for every head `k`, so one pass over the graph serves all edges with the
    tail `j`; where ranks differ much, a pass at the head may be cheaper, and the cheapest set of
    passes is chosen. Only the states are kept for the backward pass. Derivatives are those of
    `propagate`.

    Args:
        graph: `C` relations over `N` nodes.
        dag: Its edges say which states feed which.
        h: The state of `dag.source`, (N, d, F), or (N, F) for `d = 1`. Types as in `propagate`.
        weights: (C, d_j, d_k) for every edge `(j, k)` of `dag`; with `groups`, (G, C, d_j, d_k).
            The factor `1 / d_j` of a meta-graph's distribution is not applied here: it belongs in
            the weights.
        choices: The names of the relations that edges use, for edges that do not use all. Their
            other weights count as zero, and have the gradient zero; without any, an edge carries
            nothing. The kernels leave out of a pass what none of its edges uses.
        rows: Which rows of the sink to return: ids (B,) in any order, a mask (N,), or what
            `graph.plan_rows` made of them. Of every state only the rows that these depend on are
            computed and stored. The result and all gradients are those of selecting from the whole
            sink, bit for bit.
        support: Ids or a mask of the rows of `h` that count; the others are taken as zero, and rows
            that they alone could reach are not computed.
        groups: The group (F,) of each feature column, as in `propagate`.
        return_states: Return the states of all nodes, by node, rather than that of the sink.

    Returns:
        The state (N, d, F) of `dag.sink`, or its `rows` (B, d, F), or the dict of all states.

    Example:
        >>> import scipy.sparse as sp
        >>> g = RelationGraph.from_scipy({"A": sp.csr_array([[0, 2], [1, 0]])}, identity=True)
        >>> dag = Dag.path(2)
        >>> only_a = torch.tensor([1.0, 0.0]).reshape(2, 1, 1)
        >>> h = torch.tensor([[1.0], [5.0]])
        >>> propagate_dag(g, dag, h, {edge: only_a for edge in dag.edges}).flatten()  # A A h
        tensor([ 2., 10.])
        >>> ones = dict.fromkeys(dag.edges, torch.ones(2, 1, 1))
        >>> propagate_dag(g, dag, h, ones, choices={(0, 1): ["A"]}).flatten()  # (A + I) A h
        tensor([12., 11.])
        >>> propagate_dag(g, dag, h, ones, rows=torch.tensor([1])).flatten()
        tensor([17.])
    """
    here: tuple[Tensor | None, Tensor | None] = None, None
    with checking(graph):
        if return_states and (rows is not None or support is not None):
            raise ValueError("return_states is for whole states: leave out rows and support")
        source = h.unsqueeze(1) if h.dim() == 2 else h
        _check_features(graph, source, "(N, d, F) or (N, F)")
        _check_edges(dag, weights)
        first = dag.edges[0]
        num_groups = None if groups is None else _num_groups(weights[first], f"weights[{first!r}]")
        ranks = _ranks(graph, dag, source.shape[1], weights, num_groups)
        columns = Groups.of(groups, num_groups, source.shape[2])
        used = None if choices is None else used_relations(graph.relation_names, dag, choices)
        if isinstance(graph, GraphPart):
            here = _rows_here(graph, "rows", rows), _rows_here(graph, "support", support)
            rows = support = None
    source, sizes = columns.sort(source), columns.sizes
    w = torch.cat([weights[edge].reshape(num_groups or 1, -1) for edge in dag.edges], 1).flatten()
    # An empty list, of a graph without relations, would confuse torch's check of the gradients.
    chosen = used or None
    if isinstance(rows, RowPlan):
        assert isinstance(graph, RelationGraph)
        if support is not None:
            raise ValueError("support: a plan of rows has its own, see RelationGraph.plan_rows")
        _check_plan(rows, graph, dag, chosen)
        return columns.restore(_sink_rows(rows, graph, source, w, ranks, chosen, sizes))
    if rows is not None or support is not None:
        assert isinstance(graph, RelationGraph)
        if not torch.compiler.is_compiling():
            plan = graph.plan_rows(dag, rows, choices, support=support)
            return columns.restore(_sink_rows(plan, graph, source, w, ranks, chosen, sizes))
        source = source if support is None else _supported(source, support)
    states = _run(graph, source, w, ranks, *ends(dag), chosen, sizes, here=here)
    if rows is not None:  # torch.compile can't depend on how many there are
        return columns.restore(states[-1][rows])
    if not return_states:
        return columns.restore(states[-1])
    return dict(zip(dag.nodes, map(columns.restore, [source, *states]), strict=True))


def _sink_rows(
    plan: RowPlan,
    graph: RelationGraph,
    h: Tensor,
    w: Tensor,
    ranks: Sequence[int],
    chosen: Sequence[int] | None,
    group_sizes: Sequence[int] | None,
) -> Tensor:
    """The wanted rows of the sink."""
    needed = plan.operands()
    return plan.select(_run(graph, h, w, ranks, *ends(plan.dag), chosen, group_sizes, needed)[-1])


def _rows_here(graph: GraphPart, what: str, rows: Tensor | RowPlan | None) -> Tensor | None:
    """Ids of the rows of a part that are here."""
    if isinstance(rows, RowPlan):
        raise TypeError(f"{what}: plans are for whole graphs; give ids or a mask of the rows here")
    return None if rows is None else as_ids(what, rows, graph.num_nodes)


def _supported(h: Tensor, support: Tensor) -> Tensor:
    """`h` with zeros in all rows but those of the support."""
    keep = torch.zeros(len(h), dtype=torch.bool, device=h.device)
    keep[support] = True
    return torch.where(keep[:, None, None], h, 0.0)


def _check_plan(
    plan: RowPlan, graph: RelationGraph, dag: Dag, chosen: Sequence[int] | None
) -> None:
    if plan.dag != dag or plan.num_nodes != graph.num_nodes:
        raise ValueError(
            f"rows: {plan} is over {plan.dag}, but the dag is {dag} and the graph has "
            f"{graph.num_nodes} nodes"
        )
    if plan.chosen != (None if chosen is None else tuple(chosen)):
        raise ValueError(f"rows: {plan} was made for other choices")
    if not torch.compiler.is_compiling() and not plan.fits(graph._pattern()):
        raise ValueError(f"rows: {plan} was made for a graph with other edges")


def _run(
    graph: RelationGraph | GraphPart,
    h: Tensor,
    w: Tensor,
    ranks: Sequence[int],
    tails: Sequence[int],
    heads: Sequence[int],
    chosen: Sequence[int] | None,
    group_sizes: Sequence[int] | None,
    needed: Sequence[Tensor] = (),
    here: tuple[Tensor | None, Tensor | None] = (None, None),
) -> list[Tensor]:
    """The states 1 .. K: at the rows needed of each; of a part, for rows and a support that it has."""
    if not torch.compiler.is_compiling():
        extension.warn_about_problem()
        if h.is_cuda:
            check_gpu(h.device)
    if group_sizes is not None and isinstance(graph, GraphPart):
        graph.agree({"groups of columns": list(group_sizes)})

        def run(h: Tensor, w: Tensor) -> list[Tensor]:
            return _run(graph, h, w, ranks, tails, heads, chosen, None, needed, here)

        return run_by_group(run, h, w, group_sizes)
    if isinstance(graph, GraphPart):
        return graph.states(h, w, ranks, tails, heads, chosen, *here)
    sums = torch.float64 if h.dtype == torch.float64 else torch.float32
    graph = graph if graph.dtype == sums else _converted(graph, sums)
    forward, backward = graph.forward, graph.backward
    arguments = Arguments(
        h=h,
        w=w.to(sums),
        edge_val=forward.edge_val,
        seg_val=forward.seg_val,
        back_edge_val=backward.edge_val,
        back_seg_val=backward.seg_val,
        loop=graph.loop,
        seg_loop=forward.seg_loop,
        forward=forward.structure(),
        backward=backward.structure(),
        ranks=ranks,
        tails=tails,
        heads=heads,
        chosen=chosen,
        needed=list(needed),
        group_sizes=group_sizes,
    )
    states: list[Tensor]
    if torch.compiler.is_compiling():
        states = torch.ops.tensus_tn.propagate(*arguments)
        return states
    try:
        states = torch.ops.tensus_tn.propagate(*arguments)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise _out_of_memory(error, graph, arguments) from error
    return states


def run_by_group(
    run: Callable[[Tensor, Tensor], list[Tensor]], h: Tensor, w: Tensor, sizes: Sequence[int]
) -> list[Tensor]:
    """The states 1 .. K by a call for each group: for parts of graphs, which know none."""
    columns, weights = h.split(list(sizes), 2), w.reshape(len(sizes), -1).unbind()
    parts = [run(*given) for given in zip(columns, weights, strict=True)]
    return [torch.cat(states, 2) for states in zip(*parts, strict=True)]


def _out_of_memory(error: RuntimeError, graph: RelationGraph, given: Arguments) -> MemoryError:
    """What an allocation failed for; where only some rows are computed, it is for all of them."""
    dag = Dag(list(zip(given.tails, given.heads, strict=True)))
    ranks: dict[Node, int] = dict(enumerate(given.ranks))
    return out_of_memory(
        error, graph.num_nodes, graph.memory(dag, ranks, given.h.shape[2], given.h.dtype)
    )


_warned = False


def _converted(graph: RelationGraph, dtype: torch.dtype) -> RelationGraph:
    """The graph with values of another type; says once that digits are lost, where some are."""
    global _warned
    converted = graph.to(dtype)
    if _warned or torch.compiler.is_compiling() or dtype != torch.float32:
        return converted
    with torch.no_grad():
        _warned = not torch.equal(converted.values().double(), graph.values())
    if _warned:
        warnings.warn(
            "the graph's values are float64 and are rounded to float32 for these features, in every "
            "call: give float64 features, or build the graph with dtype=torch.float32 (or convert it "
            "once by graph.to(torch.float32))",
            stacklevel=4,
        )
    return converted


def _check_features(graph: RelationGraph | GraphPart, h: Tensor, shape: str) -> None:
    if not isinstance(graph, RelationGraph | GraphPart):
        raise TypeError(f"graph must be a RelationGraph, got {type(graph).__name__}")
    if not isinstance(h, Tensor):
        raise TypeError(f"h must be a tensor, got {type(h).__name__}")
    if h.dim() != 3 or h.shape[0] != graph.num_nodes or h.shape[1] < 1:
        raise ValueError(
            f"h must have shape {shape} with N = {graph.num_nodes}, got {tuple(h.shape)}"
        )
    if h.dtype not in _DTYPES:
        raise TypeError(f"h must be float32, float64, bfloat16 or float16, got {h.dtype}")
    if h.device != graph.device:
        raise ValueError(f"h is on {h.device}, the graph is on {graph.device}")


def _num_groups(w: Tensor, name: str) -> int:
    """The groups that weights (G, C, P, Q) are for."""
    if not isinstance(w, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(w).__name__}")
    if w.dim() != 4 or len(w) < 1:
        raise ValueError(f"{name} must have shape (G, C, P, Q) with groups, got {tuple(w.shape)}")
    return len(w)


def _check_weights(
    w: Tensor,
    groups: int | None,
    relations: int,
    rows: int,
    columns: int | None,
    device: torch.device,
    edge: Edge | None = None,
) -> None:
    def name() -> str:
        return "w" if edge is None else f"weights[{edge!r}]"

    if not isinstance(w, Tensor):
        raise TypeError(f"{name()} must be a tensor, got {type(w).__name__}")
    shape, before = (
        tuple(w.shape),
        (relations, rows) if groups is None else (groups, relations, rows),
    )
    fits = len(shape) == len(before) + 1 and shape[:-1] == before and shape[-1] >= 1
    if not fits or (columns is not None and shape[-1] != columns):
        axes = "(C, P, Q)" if groups is None else "(G, C, P, Q)"
        expected = (*before, "any" if columns is None else columns)
        raise ValueError(f"{name()} must have shape {axes} = {expected}, got {shape}")
    if not w.dtype.is_floating_point:
        raise TypeError(f"{name()} must be a floating-point tensor, got {w.dtype}")
    if w.device != device:
        raise ValueError(f"{name()} is on {w.device}, the graph is on {device}")


def _check_edges(dag: Dag, weights: Mapping[Edge, Tensor]) -> None:
    if missing := [edge for edge in dag.edges if edge not in weights]:
        raise ValueError(f"no weights for the edges {missing}")
    if len(weights) != len(dag.edges):
        unknown = [edge for edge in weights if edge not in dag.edges]
        raise ValueError(f"weights for edges that the dag does not have: {unknown}")


def _ranks(
    graph: RelationGraph | GraphPart,
    dag: Dag,
    source_rank: int,
    weights: Mapping[Edge, Tensor],
    groups: int | None,
) -> list[int]:
    """The rank of every node, in the order of `dag.nodes`; checks that the weights agree."""
    rank: dict[Node, int] = {dag.source: source_rank}
    position = {node: k for k, node in enumerate(dag.nodes)}
    relations, device = graph.num_relations, graph.device
    for edge in sorted(dag.edges, key=lambda e: position[e[0]]):
        tail, head = edge
        _check_weights(weights[edge], groups, relations, rank[tail], rank.get(head), device, edge)
        rank[head] = weights[edge].shape[-1]
    return [rank[node] for node in dag.nodes]
