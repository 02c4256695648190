"""Shared environments against the contraction of all other factors."""

from __future__ import annotations

import pytest
import torch

from tensus_tn import Dag, DagTensor
from tensus_tn.fitting.environments import Environments
from tensus_tn.network.planner import find_plan
from tests.network.networks import operands

KINDS = [
    (Dag.path(1), "node"),
    (Dag.path(2), "node"),
    (Dag.path(5), "node"),
    (Dag.path(4), "global"),
    (Dag.complete(3), "node"),
    (Dag.complete(3), "global"),
    (Dag([(0, 1), (0, 2), (1, 3), (2, 3)]), "node"),
]


@pytest.mark.parametrize(("dag", "ties"), KINDS)
@pytest.mark.parametrize("rank", [1, 2])
def test_with_a_dense_root_and_factors_that_change(dag, ties, rank):
    options = {"parametrization": "free", "dtype": torch.float64, "ties": ties}
    tensor = DagTensor(dag, [2 + k % 3 for k in range(len(dag.edges))], rank, **options)
    terms, sizes = tensor.structure.terms, tensor.structure.sizes
    root = torch.randn(tensor.shape, dtype=torch.float64)
    choices = tuple(term[0] for term in terms)
    factors = [core.detach() for core in operands(tensor)]
    visited = []
    for edge, environment in Environments(terms, sizes, choices).visit(
        factors, root, range(len(terms))
    ):
        rest = [e for e in range(len(terms)) if e != edge]
        plan = find_plan([choices, *(terms[e] for e in rest)], terms[edge], sizes)
        torch.testing.assert_close(environment, plan(root, *(factors[e] for e in rest)))
        factors[edge] = torch.randn_like(factors[edge])
        visited.append(edge)
    assert visited == list(range(len(terms)))


def test_only_some_edges_and_a_batch():
    terms, sizes = [(0, 3), (0, 1, 3), (1, 2, 3), (2, 3)], (2, 3, 2, 7)
    factors = [torch.randn([sizes[i] for i in term]) for term in terms]
    environments = Environments(terms, sizes, (3,), batch=3)
    found = dict(environments.visit(factors, torch.ones(7), [0, 2]))
    assert list(found) == [0, 2]
    expected = torch.einsum("abn,bcn,cn->an", *factors[1:])
    torch.testing.assert_close(found[0], expected)
    expected = torch.einsum("an,abn,cn->bcn", factors[0], factors[1], factors[3])
    torch.testing.assert_close(found[2], expected)
