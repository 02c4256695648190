import random

import pytest
import torch
from scipy import stats
from torch.utils._python_dispatch import TorchDispatchMode

from tensus_tn import Dag, DagTensor
from tests.network.networks import brute_force, random_tensor


def check_counts(samples: torch.Tensor, probabilities: torch.Tensor) -> None:
    """A chi-square test; cells that expect fewer than five are put together."""
    flat = torch.zeros(samples.shape[0], dtype=torch.long)
    for column, size in zip(samples.t(), probabilities.shape, strict=True):
        flat = flat * size + column
    counts = torch.bincount(flat, minlength=probabilities.numel()).double()
    expected = probabilities.flatten() * len(samples)
    rare = expected < 5
    counts = torch.cat([counts[~rare], counts[rare].sum(0, keepdim=True)])
    expected = torch.cat([expected[~rare], expected[rare].sum(0, keepdim=True)])
    if expected[-1] == 0:
        assert counts[-1] == 0
        counts, expected = counts[:-1], expected[:-1]
    statistic = float(((counts - expected) ** 2 / expected).sum())
    assert stats.chi2.sf(statistic, max(len(expected) - 1, 1)) > 1e-4


@pytest.mark.parametrize("seed", range(8))
def test_samples_follow_the_distribution(seed):
    t = random_tensor(random.Random(seed), "softmax")
    generator = torch.Generator().manual_seed(seed)
    samples = t.sample(20_000, generator=generator)
    assert samples.shape == (20_000, t.ndim)
    check_counts(samples, brute_force(t))


@pytest.mark.parametrize("seed", range(12))
def test_samples_under_conditions(seed):
    """The ranks follow what is fixed: any number of edges, either kind of ties."""
    rng = random.Random(seed)
    t = random_tensor(rng, "softmax")
    while t.ndim < 3:
        t = random_tensor(rng, "softmax")
    with torch.no_grad():
        for core in t.parameters():
            core *= 3  # strong dependence between edges
    edges = rng.sample(t.edges, rng.randint(1, t.ndim - 1))
    left = t.condition(dict.fromkeys(edges, 0))
    samples = left.sample(20_000, generator=torch.Generator().manual_seed(seed))
    check_counts(samples, left.to_dense().detach())


def test_the_generator_decides():
    t = DagTensor(Dag.complete(3), choices=4, rank=2)
    draws = [t.sample(50, generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_rsample_draws_one_hot_choices_from_the_distribution():
    t = DagTensor(Dag.complete(2), choices={(0, 1): 2, (0, 2): 3, (1, 2): 4}, rank=2)
    draws = t.rsample(20_000, generator=torch.Generator().manual_seed(0))
    for edge, size in zip(t.edges, t.shape, strict=True):
        assert draws[edge].shape == (20_000, size)
        torch.testing.assert_close(draws[edge].sum(1), torch.ones(20_000))
    samples = torch.stack([draws[edge].argmax(1) for edge in t.edges], dim=1)
    check_counts(samples, t.to_dense().detach().double())


def test_rsample_carries_gradients():
    """At a low temperature the straight-through gradient of an expectation points the right way."""
    t = DagTensor(Dag.path(2), choices=3, rank=2, init_scale=0.0)
    reward = torch.tensor([1.0, 0.0, 0.0])
    draws = t.rsample(5000, temperature=1.0, generator=torch.Generator().manual_seed(0))
    (draws[0, 1] @ reward).mean().backward()
    gradient = t.core_0.grad.sum((1, 2))
    assert gradient[0] > 0.05
    assert (gradient[1:] < -0.02).all()
    assert t.core_1.grad is None  # the other edge has no part in it


class LargestTensor(TorchDispatchMode):
    """Records the largest tensor that any operation makes, in elements."""

    largest = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for x in result if isinstance(result, (list, tuple)) else [result]:
            if isinstance(x, torch.Tensor):
                self.largest = max(self.largest, x.numel())
        return result


def test_many_samples_are_drawn_in_pieces_that_fit_the_limit():
    t = DagTensor(Dag.complete(2), choices=50, rank=20, memory_limit=4 * 2000)
    for tensor in (t, t.condition({(0, 1): 3})):
        with LargestTensor() as record:
            samples = tensor.sample(997)
        assert samples.shape == (997, tensor.ndim)
        assert record.largest <= max(samples.numel(), 2000)
    check_counts(t.sample(20_000)[:, 1:2], t.marginal([(0, 2)]).detach())


def test_draws_with_gradients_that_do_not_fit_are_refused():
    t = DagTensor(Dag.path(2), choices=50, rank=2, memory_limit=4 * 2000)
    t.rsample(40)
    with pytest.raises(ValueError, match="the draws have 2,050 entries, above the memory limit"):
        t.rsample(41)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_samples_of_short_dtypes_are_not_biased(dtype):
    """Three choices: clocks in bfloat16 would tie, and the first choice would win them."""
    t = DagTensor(Dag.path(1), choices=3, rank=1, init_scale=0.0, dtype=dtype)
    samples = t.sample(300_000, generator=torch.Generator().manual_seed(0))
    check_counts(samples, torch.full((3,), 1 / 3, dtype=torch.float64))
    draws = t.rsample(10)[0, 1]
    assert draws.dtype == dtype


def test_a_condition_tells_both_ranks_that_its_edge_touches():
    """Given the middle edge both ranks are 0, and so are the choices of the outer edges."""
    t = DagTensor(Dag.path(3), choices=2, rank=2)
    nothing = float("-inf")
    with torch.no_grad():
        t.core_0.copy_(torch.tensor([[[0.0, nothing]], [[nothing, 0.0]]]))
        t.core_1.copy_(
            torch.tensor([[[0.0, nothing], [nothing, nothing]], [[0.0, 0.0], [0.0, 0.0]]])
        )
        t.core_2.copy_(torch.tensor([[[0.0], [nothing]], [[nothing], [0.0]]]))
    assert not t.condition({(1, 2): 0}).sample(100).any()
