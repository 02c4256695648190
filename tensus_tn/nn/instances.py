"""The instances of a meta-graph: counted by a join of the edges of its links, listed by a search.

An instance gives every state a node such that every link finds an edge of its relation between the
nodes of its two states; the two ends of an identity are the same node. Tables of such nodes, with
counts, are joined and summed out in an order of small fill.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import islice

import numpy as np
import numpy.typing as npt

from tensus_tn.dag import Dag, Edge, Node
from tensus_tn.network.elimination import min_fill_order
from tensus_tn.nn.links import useful_links
from tensus_tn.nn.schema import IDENTITY
from tensus_tn.propagation.relation_graph import RelationGraph


@dataclass(frozen=True)
class _Table:
    """How often (n,) each combination of nodes (n, v) occurs in the states `states` (v)."""

    states: tuple[int, ...]
    nodes: npt.NDArray[np.int64]
    count: npt.NDArray[np.float64]


def count_instances(
    graph: RelationGraph, dag: Dag, relations: Mapping[Edge, str], max_rows: int
) -> int:
    """The number of instances; exact up to 2^53."""
    number, tables = _tables(graph, dag, relations)
    if not tables:  # without a link there is no instance; all states may also be one, of any node
        return graph.num_nodes if number else 0
    for state in list(min_fill_order([table.states for table in tables], set())):
        joint = [table for table in tables if state in table.states]
        tables = [table for table in tables if state not in table.states]
        first, *rest = sorted(joint, key=lambda table: len(table.count))
        whole = reduce(lambda left, right: _join(left, right, max_rows), rest, first)
        tables.append(_sum_out(whole, state))
    return int(np.prod([table.count.sum() for table in tables]))


def list_instances(
    graph: RelationGraph, dag: Dag, relations: Mapping[Edge, str], limit: int
) -> list[dict[Node, int]]:
    """Up to `limit` instances, each the node of every state on a link, by a search in depth."""
    number, tables = _tables(graph, dag, relations)
    if not tables:
        nodes = range(min(limit, graph.num_nodes) if number else 0)
        return [dict.fromkeys(number, node) for node in nodes]
    states = sorted({state for table in tables for state in table.states})
    found = islice(_search(tables, states, {}), limit)
    return [{node: instance[k] for node, k in number.items()} for instance in found]


def _search(
    tables: list[_Table], states: list[int], chosen: dict[int, int]
) -> Iterator[dict[int, int]]:
    """All ways to give the remaining states a node, one state after the other."""
    if len(chosen) == len(states):
        yield chosen
        return
    state = states[len(chosen)]
    columns = [_column(table, state, chosen) for table in tables if state in table.states]
    for node in reduce(np.intersect1d, columns[1:], np.unique(columns[0])).tolist():
        yield from _search(tables, states, {**chosen, state: node})


def _column(table: _Table, state: int, chosen: Mapping[int, int]) -> npt.NDArray[np.int64]:
    """The nodes of one state in the rows that agree with what is chosen."""
    agrees = np.ones(len(table.count), dtype=bool)
    for k, other in enumerate(table.states):
        if other in chosen:
            agrees &= table.nodes[:, k] == chosen[other]
    column: npt.NDArray[np.int64] = table.nodes[agrees, table.states.index(state)]
    return column


def _tables(
    graph: RelationGraph, dag: Dag, relations: Mapping[Edge, str]
) -> tuple[dict[Node, int], list[_Table]]:
    """A number for every state on a link, and the possible edges of every link but identities."""
    links = [edge for _, edges in useful_links(dag, relations) for edge in edges]
    number = _merged_states(dag, links, relations)
    tables = [
        _edges(graph, relations[edge], number[edge[0]], number[edge[1]])
        for edge in links
        if relations[edge] != IDENTITY
    ]
    return number, _filtered(tables, graph.num_nodes)


def _merged_states(dag: Dag, links: list[Edge], relations: Mapping[Edge, str]) -> dict[Node, int]:
    """A number for every state on a link, the same for those that identities join."""
    used = {node for edge in links for node in edge}
    number = {node: k for k, node in enumerate(dag.nodes) if node in used}
    for tail, head in links:
        if relations[tail, head] == IDENTITY:
            old, new = number[head], number[tail]
            number = {node: new if k == old else k for node, k in number.items()}
    return number


def _edges(graph: RelationGraph, relation: str, tail: int, head: int) -> _Table:
    """The edges of one relation as a table; those from a node to itself where both ends are one.

    Self-loops that were added are left out: those that are folded are no edges anyway.
    """
    segments = graph.forward
    seg = segments.edge_seg()
    mine = segments.seg_rel[seg] == graph.relation_index(relation)
    if segments.edge_added is not None:
        mine &= ~segments.edge_added
    senders, receivers = segments.col[mine].long(), segments.seg_row()[seg][mine]
    if tail == head:
        senders = senders[senders == receivers]
        return _Table((tail,), senders[:, None].cpu().numpy(), np.ones(len(senders)))
    nodes = np.stack([senders.cpu().numpy(), receivers.cpu().numpy()], axis=1)
    return _Table((tail, head), nodes, np.ones(len(nodes)))


def _filtered(tables: list[_Table], num_nodes: int) -> list[_Table]:
    """The tables without rows whose nodes some other table does not have in that state."""
    before = -1
    while before != (before := sum(len(table.count) for table in tables)):
        for state in {state for table in tables for state in table.states}:
            possible = np.ones(num_nodes, dtype=bool)
            for table in tables:
                if state in table.states:
                    here = np.zeros(num_nodes, dtype=bool)
                    here[table.nodes[:, table.states.index(state)]] = True
                    possible &= here
            tables = [_only(table, state, possible) for table in tables]
    return tables


def _only(table: _Table, state: int, possible: npt.NDArray[np.bool_]) -> _Table:
    if state not in table.states:
        return table
    kept = possible[table.nodes[:, table.states.index(state)]]
    return _Table(table.states, table.nodes[kept], table.count[kept])


def _join(left: _Table, right: _Table, max_rows: int) -> _Table:
    shared = [state for state in left.states if state in right.states]
    added = [k for k, state in enumerate(right.states) if state not in shared]
    keys = np.concatenate(
        [table.nodes[:, [table.states.index(state) for state in shared]] for table in (left, right)]
    )
    _, key = _groups(keys)
    of_left, of_right = key[: len(left.count)], key[len(left.count) :]
    order = np.argsort(of_right, kind="stable")
    first = np.searchsorted(of_right[order], of_left, side="left")
    found = np.searchsorted(of_right[order], of_left, side="right") - first
    if found.sum() > max_rows:
        raise ValueError(
            f"counting needs a table of {found.sum():,} rows, above the limit of {max_rows:,}; "
            "raise max_rows"
        )
    row = np.repeat(np.arange(len(found)), found)
    within = np.arange(len(row)) - np.repeat(np.cumsum(found) - found, found)
    match = order[first[row] + within]
    return _Table(
        (*left.states, *(right.states[k] for k in added)),
        np.concatenate([left.nodes[row], right.nodes[match][:, added]], axis=1),
        left.count[row] * right.count[match],
    )


def _sum_out(table: _Table, state: int) -> _Table:
    rest = [k for k, other in enumerate(table.states) if other != state]
    states = tuple(table.states[k] for k in rest)
    first, group = _groups(table.nodes[:, rest])
    count = np.zeros(len(first))
    np.add.at(count, group, table.count)
    return _Table(states, table.nodes[first][:, rest], count)


def _groups(rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where each distinct row (n, v) occurs first, and the number of the distinct row of each."""
    group = np.zeros(len(rows), dtype=np.int64)
    first = np.zeros(min(len(rows), 1), dtype=np.int64)
    for column in rows.T:  # one after the other: a sort of single integers is fast
        width = int(column.max(initial=0)) + 1
        _, first, group = np.unique(group * width + column, return_index=True, return_inverse=True)
    return first, group
