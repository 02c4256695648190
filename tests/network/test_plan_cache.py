"""Plans are made once, and the cache is bounded."""

import pytest

from tensus_tn import Dag, DagTensor, set_plan_cache_size
from tensus_tn.network import plan_cache


def test_plans_are_made_once_and_the_cache_is_bounded():
    set_plan_cache_size(2)
    try:
        t, twin = (DagTensor(Dag.complete(3), 4, 3, parametrization="free") for _ in range(2))
        plan = t.plan("sum")
        assert twin.plan("sum") is plan  # the same structure, another tensor
        assert t.plan("dense") is t.plan("dense")
        t.plan("entries", batch=100)
        assert t.plan("sum") is not plan  # the third plan drove it out
        assert plan_cache._plans.cache_info().currsize == 2
        set_plan_cache_size(0)
        assert t.plan("sum") is not t.plan("sum")
    finally:
        set_plan_cache_size(1024)


def test_bad_cache_size():
    with pytest.raises(ValueError, match="non-negative integer"):
        set_plan_cache_size(-1)
