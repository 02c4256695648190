"""From a query to the contraction that answers it: one function for each kind of query.

`optimize` is passed to `find_plan`, and no tensor of a plan has more than `limit` entries.
"""

from __future__ import annotations

from tensus_tn.network.plan import Plan
from tensus_tn.network.plan_cache import cached
from tensus_tn.network.planner import find_plan
from tensus_tn.network.structure import Structure
from tensus_tn.network.tables import TablePlan, find_table_plan
from tensus_tn.network.typing import Indices, Optimize


@cached
def entry(structure: Structure, optimize: Optimize, limit: int) -> Plan:
    """One entry: the caller selects from every core, so the operands have ranks only."""
    return find_plan(structure.core_ranks, (), structure.sizes, optimize=optimize, limit=limit)


def entries(
    structure: Structure,
    batch: int,
    optimize: Optimize,
    limit: int,
    used: Indices | None = None,
) -> TablePlan:
    """A batch of about so many entries, from the cores of the edges `used`; None: of all."""
    return _entries(structure, _rounded_up(batch), optimize, limit, used)


@cached
def _entries(
    structure: Structure, batch: int, optimize: Optimize, limit: int, used: Indices | None
) -> TablePlan:
    edges = range(len(structure.terms)) if used is None else used
    return find_table_plan(
        [structure.terms[e] for e in edges],
        [None if e in structure.fixed else structure.choice(e) for e in edges],
        structure.sizes,
        batch,
        optimize=optimize,
        limit=limit,
    )


def _rounded_up(batch: int) -> int:
    """So that batches of about one size share a plan."""
    # Comparisons, not arithmetic: torch.compile may trace this with a symbolic batch size.
    for size in (1, 8, 64, 512, 4096, 2**15, 2**18):
        if batch <= size:
            return size
    return 2**21


@cached
def marginal(structure: Structure, kept: Indices, optimize: Optimize, limit: int) -> Plan:
    """The choices of the edges `kept`, the others summed; from the cores of `used_edges` alone."""
    inputs = [structure.terms[e] for e in used_edges(structure, kept)]
    output = tuple(structure.choice(e) for e in kept)
    return find_plan(inputs, output, structure.sizes, optimize=optimize, limit=limit)


def used_edges(structure: Structure, kept: Indices) -> Indices:
    """The cores that a marginal needs: with softmax cores, one whose choice is summed is all ones."""
    edges = range(len(structure.terms))
    if not structure.normalized:
        return tuple(edges)
    return tuple(e for e in edges if e in kept or e in structure.fixed)


@cached
def inner_product(first: Structure, second: Structure, optimize: Optimize, limit: int) -> Plan:
    """The sum over all entries of the product of two networks of the same shape."""
    # The second has ranks of its own, after all indices of the first, and the choices of the first.
    shift, axes = len(first.sizes), dict(zip(second.free, first.free, strict=True))
    number = {rank: shift + rank for rank in range(len(second.ranks))}
    number |= {second.choice(e): first.choice(axis) for e, axis in axes.items()}
    terms = [tuple(number[i] for i in term) for term in second.terms]
    sizes = first.sizes + second.ranks
    return find_plan((*first.terms, *terms), (), sizes, optimize=optimize, limit=limit)


@cached
def total(structure: Structure, optimize: Optimize, limit: int) -> Plan:
    """The sum of all entries, from all cores, even those that sum to one."""
    return find_plan(structure.terms, (), structure.sizes, optimize=optimize, limit=limit)
