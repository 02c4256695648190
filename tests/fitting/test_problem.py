"""What the problems of least squares share."""

import torch

from tensus_tn import Dag, DagTensor
from tensus_tn.fitting.dense_fit import DenseFit
from tests.network.networks import operands


def problem_and_cores(fixed=frozenset()):
    options = {"parametrization": "free", "dtype": torch.float64}
    tensor = DagTensor(Dag.complete(3), 3, 2, **options)
    data = torch.randn(tensor.shape, dtype=torch.float64)
    cores = [core.detach() * 2.0**k / 5 for k, core in enumerate(operands(tensor))]
    return DenseFit(tensor.structure, data / data.norm(), fixed), cores


def test_equalize_keeps_the_tensor():
    problem, cores = problem_and_cores()
    equal = problem.equalize(cores)
    torch.testing.assert_close(problem.model(*equal), problem.model(*cores))
    norms = torch.stack([core.norm() for core in equal])
    torch.testing.assert_close(norms, norms.mean().expand_as(norms))


def test_fixed_cores_are_left_alone():
    problem, cores = problem_and_cores(frozenset({1, 4}))
    equal = problem.equalize(cores)
    torch.testing.assert_close(problem.model(*equal), problem.model(*cores))
    swept, _ = problem.sweep(cores)
    for after in (equal, swept):
        kept = [e for e, core in enumerate(after) if torch.equal(core, cores[e])]
        assert kept == [1, 4]
    free = sum(cores[e].numel() for e in (0, 2, 3, 5))
    assert problem.gradient(cores).shape == (free,)
    assert problem.curvature(cores).shape == (free, free)


def test_a_sweep_solves_one_core_after_the_other():
    problem, cores = problem_and_cores()
    swept, error = problem.sweep(cores)
    torch.testing.assert_close(torch.tensor(error), torch.tensor(problem.error(swept)))
    for e in range(len(cores)):
        mixed = swept[: e + 1] + cores[e + 1 :]
        leaf = mixed[e].clone().requires_grad_()
        problem.loss([*mixed[:e], leaf, *mixed[e + 1 :]]).backward()
        assert leaf.grad.abs().max() < 1e-9
