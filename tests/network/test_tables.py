import copy
import pickle
import random

import pytest
import torch

from tensus_tn import Dag, DagTensor
from tensus_tn.network import query_plans
from tensus_tn.network.semiring import LOG_SUM_EXP
from tests.network.networks import brute_force, operands, random_index, random_tensor


@pytest.mark.parametrize("batch", [1, 50, 10**4, 10**7])
@pytest.mark.parametrize("seed", range(15))
def test_tables_of_any_size_give_the_same_entries(seed, batch):
    """What is planned for decides how large the tables are, never what comes out."""
    t = random_tensor(random.Random(seed), "free")
    index = random_index(t.shape, 20)
    plan = query_plans._entries(t.structure, batch, "auto", 2**27, None)
    assert sorted(n for group in plan.groups for n in group) == list(range(t.ndim))
    expected = brute_force(t)[tuple(index.t())]
    torch.testing.assert_close(plan(operands(t), index), expected)
    logs = [core.abs().log() for core in operands(t)]
    absolute = copy.deepcopy(t)._filled([core.abs() for core in operands(t)])
    expected = brute_force(absolute)[tuple(index.t())]
    torch.testing.assert_close(plan(logs, index, semiring=LOG_SUM_EXP).exp(), expected)


def test_a_large_batch_gets_tables_and_a_small_one_does_not():
    t = DagTensor(Dag.path(8), choices=6, rank=4)
    assert len(t.plan("entries", batch=2).groups) > len(t.plan("entries", batch=10**5).groups)
    assert len(t.plan("entries", batch=10**5).groups) == 2


def test_tables_stay_below_the_limit():
    t = DagTensor(Dag.path(8), choices=6, rank=4, memory_limit=4 * 500)
    plan = t.plan("entries", batch=10**5)
    assert all(table.largest <= 500 for table in plan.tables)


def test_table_plans_are_values():
    t = DagTensor(Dag.complete(4), choices=3, rank=2)
    plan = t.plan("entries", batch=1000)
    index = random_index(t.shape, 10)
    value = plan(operands(t), index)
    for twin in (pickle.loads(pickle.dumps(plan)), copy.deepcopy(plan)):
        assert twin == plan
        assert hash(twin) == hash(plan)
        torch.testing.assert_close(twin(operands(t), index), value)
