"""Plans as values: what they count, print, and survive."""

import copy
import pickle

import pytest
import torch

from tensus_tn.network.plan import Plan
from tensus_tn.network.planner import find_plan


def test_counts_and_table():
    plan = find_plan(((0, 1), (1, 2), (2, 3)), (0, 3), (2, 3, 4, 5))
    assert plan.equation == "ab,bc,cd->ad"
    assert plan.path in {((0, 1), (2, 3)), ((0, 1), (3, 2))}
    assert plan.flops == 2 * (2 * 3 * 4) + 2 * (2 * 4 * 5)
    assert plan.largest == 10
    text = str(plan)
    assert "ab,bc,cd->ad" in text
    assert "flops      128" in text
    assert text.count(" = (") == 2


def test_plans_are_values():
    network = (((0, 1), (1, 2)), (0, 2), (2, 3, 4))
    plan = find_plan(*network)
    plan(torch.ones(2, 3), torch.ones(3, 4))
    assert find_plan(*network) == plan
    assert hash(find_plan(*network)) == hash(plan)
    for twin in (pickle.loads(pickle.dumps(plan)), copy.deepcopy(plan)):
        assert isinstance(twin, Plan)
        assert twin == plan
        torch.testing.assert_close(
            twin(torch.ones(2, 3), torch.ones(3, 4)), torch.full((2, 4), 3.0)
        )
    with pytest.raises(AttributeError):
        plan.output = ()
