"""Every plan, run over every semiring, against einsum and the full grid."""

import random

import pytest
import torch

from tensus_tn.network.planner import find_plan
from tensus_tn.network.semiring import LOG_SUM_EXP, MAX_PRODUCT, SUM_PRODUCT
from tests.network.networks import einsum, random_contraction


def dense_max(inputs, output, sizes, operands):
    """The maximum over the summed indices of the product, over the full grid."""
    grid = torch.ones(sizes, dtype=torch.float64)
    for term, x in zip(inputs, operands, strict=True):
        order = sorted(range(len(term)), key=term.__getitem__)
        shape = [size if i in term else 1 for i, size in enumerate(sizes)]
        grid = grid * x.permute(order).reshape(shape)
    summed = [i for i in range(len(sizes)) if i not in output]
    kept = sorted(output)
    result = grid.amax(summed) if summed else grid
    return result.permute([kept.index(i) for i in output])


@pytest.mark.parametrize("seed", range(300))
def test_a_plan_computes_what_einsum_does(seed):
    inputs, output, sizes, operands = random_contraction(random.Random(seed))
    plan = find_plan(inputs, output, sizes)
    expected = einsum(inputs, output, operands)
    torch.testing.assert_close(plan(*operands), expected)
    logs = [x.log() for x in operands]
    torch.testing.assert_close(plan(*logs, semiring=LOG_SUM_EXP).exp(), expected)
    largest = dense_max(inputs, output, sizes, operands)
    torch.testing.assert_close(plan(*operands, semiring=MAX_PRODUCT), largest)


@pytest.mark.parametrize("seed", range(60))
def test_slicing_bounds_the_memory_and_keeps_the_result(seed):
    rng = random.Random(seed)
    inputs, output, sizes, operands = random_contraction(rng)
    whole = find_plan(inputs, output, sizes)
    limit = max(whole.largest // 2, whole.size(output))
    try:
        plan = find_plan(inputs, output, sizes, limit=limit)
    except ValueError:  # nothing left to slice; the test below looks at the message
        return
    assert plan.largest <= limit
    for semiring in (SUM_PRODUCT, LOG_SUM_EXP, MAX_PRODUCT):
        given = [x.log() for x in operands] if semiring is LOG_SUM_EXP else operands
        torch.testing.assert_close(
            plan(*given, semiring=semiring), whole(*given, semiring=semiring)
        )


def test_more_than_52_indices():
    inputs = [(0,), *((k, k + 1) for k in range(119)), (119,)]
    operands = [torch.rand([2] * len(term), dtype=torch.float64) for term in inputs]
    expected = operands[0]
    for matrix in operands[1:-1]:
        expected = expected @ matrix
    plan = find_plan(inputs, (), (2,) * 120)
    torch.testing.assert_close(plan(*operands), expected @ operands[-1])
    assert plan.treewidth == 1
