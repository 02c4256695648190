"""The problem of a list of entries against its Jacobian."""

import pytest
import torch

from tensus_tn import Dag, DagTensor
from tensus_tn.fitting.observed_fit import ObservedFit
from tests.fitting.test_dense_fit import jacobian_of
from tests.fitting.test_observed import observe, truth
from tests.network.networks import operands


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("fixed", [frozenset(), frozenset({1, 2})])
@pytest.mark.parametrize("ties", ["node", "global"])
def test_the_problem_against_its_jacobian(ties, fixed, dtype, monkeypatch):
    monkeypatch.setattr("tensus_tn.fitting.observed_fit._BLOCK", 500)  # several blocks of rows
    monkeypatch.setattr("tensus_tn.fitting.observed_fit._PULL", 0.0)
    dense = truth(Dag.complete(3), 3, 2).to(dtype)
    seen = observe(dense, 0.5)
    tensor = DagTensor(Dag.complete(3), 3, 2, parametrization="free", ties=ties, dtype=dtype)
    cores = [core.detach() for core in operands(tensor)]
    problem = ObservedFit(seen.nonzero(), tensor.structure, dense[seen], fixed)
    torch.testing.assert_close(
        problem.residual(cores), tensor[seen.nonzero()].detach() - dense[seen]
    )
    edges = [e for e in range(len(cores)) if e not in fixed]
    blocks = {e: jacobian_of(problem, cores, e) for e in edges}
    whole = torch.cat(list(blocks.values()), dim=1)
    torch.testing.assert_close(problem.curvature(cores), whole.mH @ whole)
    torch.testing.assert_close(problem.gradient(cores), whole.mH @ problem.residual(cores))
    visited = []
    for e, equations in problem.normal_equations(cores):
        best = torch.linalg.lstsq(blocks[e], dense[seen]).solution
        core = problem.solve(cores[e], equations)
        torch.testing.assert_close(blocks[e] @ core.flatten(), blocks[e] @ best)
        visited.append(e)
    assert visited == edges
