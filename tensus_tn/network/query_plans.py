"""Plans are made once for each structure and query, and kept in a bounded cache."""

from __future__ import annotations

from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import torch

from tensus_tn.network.execute import LOG_SUM_EXP, SUM_PRODUCT
from tensus_tn.network.plan import Indices, Optimize, Plan, find_plan
from tensus_tn.network.structure import Structure
from tensus_tn.network.tables import TablePlan, find_table_plan


def used_edges(structure: Structure, kept: Indices) -> Indices:
    """The cores that a marginal needs: with softmax cores, one whose choice is summed is all ones."""
    if not structure.normalized:
        return tuple(range(len(structure.terms)))
    return tuple(e for e in range(len(structure.terms)) if e in kept or e in structure.fixed)


def make_plan(
    structure: Structure, kind: str, batch: int, kept: Indices, optimize: Optimize, limit: int
) -> Plan | TablePlan:
    """Plan a query.

    Args:
        structure: The network.
        kind: `"entry"`: one entry, every choice fixed by the caller. `"entries"`: a batch of them.
            `"marginal"`: some choices kept, the others summed, without the cores that this does not
            need. `"all"`: the sum of all entries, with all cores.
        batch: The number of entries, for `"entries"`.
        kept: The edges, by number: for `"marginal"` those whose choices are kept, for `"entries"`
            those whose cores are contracted, all of them if empty.
        optimize: Passed to `n`.
        limit: The most entries that one tensor may have.
    """
    terms, sizes = structure.terms, structure.sizes
    if kind == "entries":
        used = kept or tuple(range(len(terms)))
        choices = [None if e in structure.fixed else structure.choice(e) for e in used]
        inputs = [terms[e] for e in used]
        return find_table_plan(inputs, choices, sizes, batch, optimize=optimize, limit=limit)
    if kind == "entry":
        return find_plan(structure.core_ranks, (), sizes, optimize=optimize, limit=limit)
    if kind == "all":
        return find_plan(terms, (), sizes, optimize=optimize, limit=limit)
    inputs = [terms[e] for e in used_edges(structure, kept)]
    output = tuple(structure.choice(e) for e in kept)
    return find_plan(inputs, output, sizes, optimize=optimize, limit=limit)


_cached = lru_cache(maxsize=1024)(make_plan)


def set_plan_cache_size(size: int | None) -> None:
    """Bound the cache of plans and empty it; 0 turns it off, None takes the bound away.

    Example:
        >>> set_plan_cache_size(256)
    """
    global _cached
    if size is not None and (not isinstance(size, int) or size < 0):
        raise ValueError(f"size must be a non-negative integer or None, got {size!r}")
    _cached = lru_cache(maxsize=size)(make_plan)


def fetch(
    structure: Structure,
    kind: str,
    *,
    batch: int = 0,
    kept: Indices = (),
    optimize: Optimize,
    limit: int,
) -> Plan | TablePlan:
    """The plan for a query (see `make_plan`), from the cache."""
    batch = _bucket(batch)
    if torch.compiler.is_compiling():
        plan: Plan | TablePlan = getattr(
            _traced, _name(structure, kind, batch, kept, optimize, limit)
        )
        return plan
    return _cached(structure, kind, batch, kept, optimize, limit)


def _bucket(batch: int) -> int:
    """Round up, so that batches of about one size share a plan."""
    # Comparisons, not arithmetic: torch.compile may trace this with a symbolic batch size.
    for size in (1, 8, 64, 512, 4096, 2**15, 2**18):
        if batch <= size:
            return size
    return 2**21


# torch.compile looks into a cached function, and would trace the search for a path. So the search is
# hidden in a function whose result it takes as a constant, the name of an attribute that has the plan.
# (A dictionary would not do: it is read once a graph, and the second plan of a graph is not in it.)
_traced = SimpleNamespace()


@torch.compiler.assume_constant_result
def _name(*query: Any) -> str:
    plan = _cached(*query)
    plan.prepare(SUM_PRODUCT)
    plan.prepare(LOG_SUM_EXP)
    setattr(_traced, f"plan_{id(plan)}", plan)
    return f"plan_{id(plan)}"
