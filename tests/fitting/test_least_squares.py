"""Ways down a sum of squares."""

import torch

from tensus_tn import Dag, DagTensor
from tensus_tn.fitting.least_squares import equalize
from tests.network.networks import operands


def test_equalize_keeps_the_tensor():
    tensor = DagTensor(Dag.complete(3), 3, 2, parametrization="free", dtype=torch.float64)
    cores = [core.detach() * 10.0**k for k, core in enumerate(operands(tensor))]
    equal = equalize(cores)
    torch.testing.assert_close(tensor.plan("dense")(*equal), tensor.plan("dense")(*cores))
    norms = torch.stack([core.norm() for core in equal])
    torch.testing.assert_close(norms, norms.mean().expand_as(norms))
