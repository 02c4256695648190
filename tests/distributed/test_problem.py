import pytest
import torch

from tensus_tn.distributed.problem import Problem
from tests.distributed.equal import NATIVE


def test_weights_are_split_by_links():
    problem = Problem((1, 2, 1), (0, 1, 0), (1, 2, 2), None)
    parts = problem.split(torch.arange(2 * (2 + 2 + 1)))
    assert [tuple(p.shape) for p in parts] == [(2, 1, 2), (2, 2, 1), (2, 1, 1)]
    assert torch.equal(torch.cat([p.flatten() for p in parts]), torch.arange(10))


def test_unused_weights_become_zero():
    problem = Problem((1, 1, 1), (0, 1), (1, 2), (1, 0, 0, 1))
    w = torch.ones(4)
    problem.clear_unused(w)
    assert w.tolist() == [1, 0, 0, 1]
    assert problem.relations(2).tolist() == [[True, False], [False, True]]
    assert Problem((1, 1), (0,), (1,), None).relations(2).all()


@pytest.mark.skipif(not NATIVE, reason="plain PyTorch mixes no links first")
def test_passes_are_planned_by_sizes():
    """One link from a wide state to a narrow one is mixed first, unless the graph has few edges."""
    problem = Problem((8, 1), (0,), (1,), None)
    assert problem.mixed_first(torch.tensor([120, 120]), 40, backward=False) == [1]
    assert problem.mixed_first(torch.tensor([2, 2]), 40, backward=False) == [0]
