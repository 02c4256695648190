"""The problem of a dense tensor against its Jacobian."""

import pytest
import torch

from tensus_tn import Dag
from tensus_tn.fitting.dense_fit import DenseFit
from tests.fitting.test_dense import free, generator
from tests.network.networks import operands


def jacobian_of(problem, cores, edge):
    """The residual is linear in a core: a column is what one element of it makes."""
    columns = []
    for unit in torch.eye(cores[edge].numel(), dtype=cores[edge].dtype):
        moved = [unit.view_as(core) if e == edge else core for e, core in enumerate(cores)]
        columns.append((problem.residual(moved) + problem.data).flatten())
    return torch.stack(columns, dim=1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("fixed", [frozenset(), frozenset({0, 3})])
@pytest.mark.parametrize("ties", ["node", "global"])
def test_plans_of_the_environment_against_the_jacobian(ties, fixed, dtype):
    sizes = {e: 2 + k % 3 for k, e in enumerate(Dag.complete(3).edges)}
    tensor = free(Dag.complete(3), 3 if ties == "global" else sizes, 2, ties=ties, dtype=dtype)
    data = torch.randn(tensor.shape, generator=generator(1), dtype=dtype)
    cores = [core.detach() for core in operands(tensor)]
    problem = DenseFit(tensor.structure, data, fixed)
    edges = [e for e in range(len(cores)) if e not in fixed]
    blocks = {e: jacobian_of(problem, cores, e) for e in edges}
    whole = torch.cat(list(blocks.values()), dim=1)
    torch.testing.assert_close(problem.curvature(cores), whole.mH @ whole)
    torch.testing.assert_close(
        problem.gradient(cores), whole.mH @ problem.residual(cores).flatten()
    )
    visited = []
    for e, equations in problem.normal_equations(cores):
        best = torch.linalg.lstsq(blocks[e], data.flatten()).solution
        core = problem.solve(cores[e], equations)
        torch.testing.assert_close(blocks[e] @ core.flatten(), blocks[e] @ best)
        visited.append(e)
    assert visited == edges
