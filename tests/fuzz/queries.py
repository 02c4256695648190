"""Random networks, some choices forbidden by logits of `-inf`: every query against brute force."""

import math
import random

import pytest
import torch
from torch import Tensor

from tensus_tn import DagTensor
from tests.network.networks import brute_force, random_tensor

TOLERANCE = 1e-9


def check(rng: random.Random) -> None:
    tensor = random_tensor(rng, rng.choice(["softmax", "softmax", "free"]), max_edges=6)
    if tensor.parametrization == "softmax" and rng.random() < 0.7:
        mask(rng, tensor)
    dense = brute_force(tensor)
    compare(rng, tensor, dense)
    if tensor.parametrization == "softmax":
        compare_gradients(tensor, dense)
    if len(tensor.dag.edges) > 1:
        check_conditional(rng, tensor, dense)


def mask(rng: random.Random, tensor: DagTensor) -> None:
    """Forbid choices, in every state of the ranks or in some, but never all of them."""
    with torch.no_grad():
        for core in tensor.parameters():
            whole = rng.random() < 0.5
            shape = (len(core), 1, 1) if whole else core.shape
            forbidden = torch.rand(shape) < rng.choice([0.0, 0.3, 0.7])
            forbidden &= ~forbidden.all(0)
            core.masked_fill_(forbidden, -math.inf)


def check_conditional(rng: random.Random, tensor: DagTensor, dense: Tensor) -> None:
    edges = tensor.dag.edges
    fixed = {
        edge: rng.randrange(tensor.shape[edges.index(edge)])
        for edge in rng.sample(edges, rng.randrange(1, len(edges)))
    }
    conditional = tensor.condition(fixed)
    part = dense[tuple(fixed.get(edge, slice(None)) for edge in edges)]
    if tensor.parametrization == "free":
        compare(rng, conditional, part)
    elif part.sum() > 0:
        compare(rng, conditional, part / part.sum())
    else:
        refuse(conditional)


def compare(rng: random.Random, tensor, dense: Tensor) -> None:
    """Every query of a tensor, or of a conditional, against all its entries."""
    edges = list(tensor.edges)
    assert_close(tensor.to_dense(), dense)
    assert_close(tensor.sum(), dense.sum())
    num = rng.randint(1, 60)
    index = torch.stack([torch.randint(size, (num,)) for size in dense.shape], 1)
    want = dense[tuple(index.T)]
    assert_close(tensor[index], want)
    assert_close(tensor[tuple(index[0].tolist())], want[0])
    kept = rng.sample(edges, rng.randint(0, len(edges)))
    assert_close(tensor.marginal(kept), marginal(dense, [edges.index(edge) for edge in kept]))
    for edge, value in tensor.marginals().items():
        assert_close(value, marginal(dense, [edges.index(edge)]))
    compare_top_k(tensor, dense, rng.randint(1, 5))
    if tensor.structure.normalized:
        assert_close(tensor.log_prob(index), want.log())
        assert_close(tensor.log_prob(tuple(index[0].tolist())), want[0].log())
        assert_close(tensor.entropy(), -torch.special.xlogy(dense, dense).sum())
        compare_samples(tensor, dense)


def marginal(dense: Tensor, kept: list[int]) -> Tensor:
    others = [axis for axis in range(dense.ndim) if axis not in kept]
    summed = dense.sum(others) if others else dense
    order = sorted(kept)
    return summed.permute([order.index(axis) for axis in kept])


def compare_top_k(tensor, dense: Tensor, k: int) -> None:
    best = tensor.top_k(k)
    assert best.exact
    want = dense.flatten().sort(descending=True).values[:k]
    assert_close(best.value, want)
    assert_close(dense[tuple(best.index.T)], want)
    assert len(best.index.unique(dim=0)) == len(want)


def compare_samples(tensor, dense: Tensor) -> None:
    """Nothing impossible is drawn, and everything about as often as it should be."""
    num = 400
    index = tensor.sample(num)
    drawn = torch.zeros_like(dense)
    drawn.index_put_(tuple(index.T), torch.ones((), dtype=dense.dtype), accumulate=True)
    assert not drawn[dense == 0].any()
    # Seven standard deviations; for rare entries, what a Poisson distribution allows as often.
    allowed = 7 * (num * dense * (1 - dense)).sqrt() + 12
    assert ((drawn - num * dense).abs() <= allowed).all()


def compare_gradients(tensor: DagTensor, dense: Tensor) -> None:
    """Of the log-probabilities of possible entries: finite, also where choices are forbidden."""
    index = dense.nonzero()
    parameters = list(tensor.parameters())
    weight = torch.randn(len(index), dtype=torch.float64)
    got = torch.autograd.grad(weight @ tensor.log_prob(index), parameters)
    entries = brute_force(tensor, differentiable=True)[tuple(index.T)]
    want = torch.autograd.grad(weight @ entries.log(), parameters)
    for a, b in zip(got, want, strict=True):
        assert_close(a, b)


def refuse(impossible) -> None:
    """No query answers, given what can't be."""
    first = torch.zeros(2, len(impossible.edges), dtype=torch.long)
    for query in (
        impossible.to_dense,
        impossible.marginals,
        impossible.entropy,
        impossible.top_k,
        impossible.sum,
        lambda: impossible.sample(3),
        lambda: impossible[first],
        lambda: impossible.log_prob(first),
        lambda: impossible.marginal(impossible.edges[:1]),
    ):
        with pytest.raises(ValueError, match="probability zero"):
            query()


def assert_close(got: Tensor, want: Tensor) -> None:
    torch.testing.assert_close(got.detach(), want.detach(), rtol=TOLERANCE, atol=TOLERANCE)
