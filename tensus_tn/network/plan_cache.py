"""Plans are made once and kept in a bounded cache, which `torch.compile` takes for a constant."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from types import SimpleNamespace
from typing import Any, ParamSpec, TypeVar

import torch

from tensus_tn.network.semiring import LOG_SUM_EXP, SUM_PRODUCT

Query = ParamSpec("Query")
AnyPlan = TypeVar("AnyPlan")


def _make(make: Callable[..., Any], *query: Any) -> Any:
    return make(*query)


_plans = lru_cache(maxsize=1024)(_make)


def set_plan_cache_size(size: int | None) -> None:
    """Bound the cache of plans and empty it; 0 turns it off, None takes the bound away.

    Example:
        >>> set_plan_cache_size(256)
    """
    global _plans
    if size is not None and (not isinstance(size, int) or size < 0):
        raise ValueError(f"size must be a non-negative integer or None, got {size!r}")
    _plans = lru_cache(maxsize=size)(_make)


def cached(make: Callable[Query, AnyPlan]) -> Callable[Query, AnyPlan]:
    """Keep the plans that a function makes; its arguments are hashable and given by position."""

    @wraps(make)
    def fetch(*query: Query.args, **_: Query.kwargs) -> AnyPlan:
        if torch.compiler.is_compiling():
            return getattr(_traced, _name(make, *query))  # type: ignore[no-any-return]
        return _plans(make, *query)  # type: ignore[no-any-return]

    return fetch


# torch.compile looks into a cached function, and would trace the search for a path. So the search is
# hidden in a function whose result it takes as a constant, the name of an attribute that has the plan.
# (A dictionary would not do: it is read once a graph, and the second plan of a graph is not in it.)
_traced = SimpleNamespace()


def _name(make: Callable[..., Any], *query: Any) -> str:
    plan = _plans(make, *query)
    plan.prepare(SUM_PRODUCT)
    plan.prepare(LOG_SUM_EXP)
    setattr(_traced, f"plan_{id(plan)}", plan)
    return f"plan_{id(plan)}"


# What torch.compiler.assume_constant_result does, but for loading the compiler: that takes a second.
_name._dynamo_marked_constant = True  # type: ignore[attr-defined]
