"""The problem of a list of entries against its Jacobian."""

import pytest
import torch

from tensus_tn import Dag, DagTensor
from tensus_tn.fitting.observed_fit import ObservedFit
from tests.fitting.test_observed import observe, truth
from tests.network.networks import operands


@pytest.mark.parametrize("ties", ["node", "global"])
def test_the_problem_against_its_jacobian(ties, monkeypatch):
    monkeypatch.setattr("tensus_tn.fitting.observed_fit._BLOCK", 500)  # several blocks of rows
    monkeypatch.setattr("tensus_tn.fitting.observed_fit._PULL", 0.0)
    dense = truth(Dag.complete(3), 3, 2)
    seen = observe(dense, 0.5)
    tensor = DagTensor(
        Dag.complete(3), 3, 2, parametrization="free", ties=ties, dtype=torch.float64
    )
    cores = [core.detach() for core in operands(tensor)]
    problem = ObservedFit(seen.nonzero(), tensor.structure, dense[seen])
    torch.testing.assert_close(
        problem.residual(cores), tensor[seen.nonzero()].detach() - dense[seen]
    )
    jacobians = torch.autograd.functional.jacobian(
        lambda *x: problem.residual(list(x)), tuple(cores)
    )
    blocks = [j.flatten(1) for j in jacobians]
    whole = torch.cat(blocks, dim=1)
    torch.testing.assert_close(problem.curvature(cores), whole.t() @ whole)
    for e, block in enumerate(blocks):
        best = torch.linalg.lstsq(block, dense[seen]).solution
        torch.testing.assert_close(block @ problem.solve(cores, e).flatten(), block @ best)
