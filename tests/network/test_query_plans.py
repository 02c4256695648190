"""Each query becomes the contraction that its definition says."""

import pytest
import torch

from tensus_tn import Dag, DagTensor
from tensus_tn.network import query_plans
from tests.network.networks import operands


def test_batches_of_about_one_size_share_a_plan():
    t = DagTensor(Dag.complete(3), choices=4, rank=3)
    assert t.plan("entries", batch=500) is t.plan("entries", batch=400)
    assert t.plan("entries", batch=500) is not t.plan("entries", batch=4000)


@pytest.mark.parametrize("parametrization", ["softmax", "free"])
def test_plans_of_the_parts_of_a_network(parametrization):
    t = DagTensor(Dag.complete(2), 3, 2, parametrization=parametrization, dtype=torch.float64)
    structure, cores, dense = t.structure, operands(t), t.to_dense().detach()
    scale = 2.0 if parametrization == "softmax" else 1.0  # Z
    one = query_plans.entry(structure, "auto", 2**20)
    torch.testing.assert_close(one(*(core[1] for core in cores)), scale * dense[1, 1, 1])
    total = query_plans.total(structure, "auto", 2**20)
    torch.testing.assert_close(total(*cores), scale * dense.sum())
    used = query_plans.used_edges(structure, (0,))
    assert used == ((0,) if parametrization == "softmax" else (0, 1, 2))
    plan = query_plans.marginal(structure, (0,), "auto", 2**20)
    torch.testing.assert_close(plan(*(cores[e] for e in used)), scale * dense.sum((1, 2)))


def test_a_batch_of_some_of_the_cores():
    t = DagTensor(Dag.complete(2), 3, 2, dtype=torch.float64)
    first, _, third = operands(t)
    plan = query_plans.entries(t.structure, 2, "auto", 2**20, (0, 2))
    index = torch.tensor([[0, 1], [2, 0]])
    expected = torch.stack([first[0] @ third[1], first[2] @ third[0]])
    torch.testing.assert_close(plan([first, third], index), expected)
