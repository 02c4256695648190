"""The problem of a dense tensor against its Jacobian."""

import pytest
import torch

from tensus_tn import Dag
from tensus_tn.fitting.dense_fit import DenseFit
from tests.fitting.test_dense import free, generator
from tests.network.networks import operands


@pytest.mark.parametrize("ties", ["node", "global"])
def test_plans_of_the_environment_against_the_jacobian(ties):
    tensor = free(Dag.complete(3), {e: 2 + k % 3 for k, e in enumerate(Dag.complete(3).edges)}, 2)
    tensor = free(Dag.complete(3), 3, 2, ties=ties) if ties == "global" else tensor
    data = torch.randn(tensor.shape, generator=generator(1), dtype=torch.float64)
    cores = [core.detach() for core in operands(tensor)]
    problem = DenseFit(tensor.structure, data)
    jacobians = torch.autograd.functional.jacobian(
        lambda *x: problem.residual(list(x)).flatten(), tuple(cores)
    )
    blocks = [j.reshape(data.numel(), -1) for j in jacobians]
    whole = torch.cat(blocks, dim=1)
    torch.testing.assert_close(problem.curvature(cores), whole.t() @ whole)
    torch.testing.assert_close(
        problem.gradient(cores), whole.t() @ problem.residual(cores).flatten()
    )
    for e, block in enumerate(blocks):
        best = torch.linalg.lstsq(block, data.flatten()).solution
        torch.testing.assert_close(block @ problem.solve(cores, e).flatten(), block @ best)
