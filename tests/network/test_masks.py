"""Forbidden choices, logits of minus infinity: every query and gradient against the definition."""

import random
from math import inf

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tensus_tn import Dag, DagTensor, fit_em
from tests.network.networks import brute_force, random_index, random_tensor


def masked(rng: random.Random, **limits) -> DagTensor:
    """A random network in which each logit is forbidden with a chance; a choice is always left."""
    t = random_tensor(rng, "softmax", **limits)
    chance = rng.choice([0.2, 0.5, 0.8])
    generator = torch.Generator().manual_seed(rng.randint(0, 2**30))
    with torch.no_grad():
        for core in t.parameters():
            noise = torch.rand(core.shape, generator=generator)
            whole = rng.random() < 0.5  # a choice in all states, or in some
            noise = noise[:, :1, :1].expand(core.shape) if whole else noise
            core[(noise < chance) & (noise < noise.amax(0))] = -inf
    return t


def gradients(value: torch.Tensor, t: DagTensor) -> list[torch.Tensor]:
    found = torch.autograd.grad(value, list(t.parameters()), allow_unused=True, retain_graph=True)
    pairs = zip(found, t.parameters(), strict=True)
    return [torch.zeros_like(p) if g is None else g for g, p in pairs]


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-12)


def possible(dense: torch.Tensor, num: int, rng: random.Random) -> torch.Tensor:
    """Indices of entries that are not zero, with repetitions."""
    index = (dense > 0).nonzero()
    return index[torch.tensor([rng.randrange(len(index)) for _ in range(num)])]


def check_values_and_gradients(left, dense, t, rng):
    """All queries of a network, whole or conditioned, against its dense tensor."""
    plain = dense.detach()
    index = random_index(left.shape, 25)
    at_index = plain[tuple(index.t())]
    close(left[index].detach(), at_index)
    close(left.log_prob(index).detach(), at_index.log())
    close(left[index[0]].detach(), at_index[0])
    close(left.log_prob(index[0]).detach(), at_index[0].log())
    close(left.sum().detach(), plain.sum())
    entropy = -torch.special.xlogy(plain, plain).sum()
    close(left.entropy().detach(), entropy)
    axes = range(left.ndim)
    for axis, value in enumerate(left.marginals().values()):
        rest = [a for a in axes if a != axis]
        close(value.detach(), plain.sum(rest) if rest else plain)
        close(left.marginal([left.edges[axis]]).detach(), value.detach())
    best = left.top_k(3)
    assert best.exact
    close(best.value.detach(), plain.flatten().sort(descending=True).values[:3])
    assert (plain[tuple(left.sample(50).t())] > 0).all()
    for draws in left.rsample(5).values():
        assert draws.isfinite().all()

    weights = torch.rand(plain.shape, dtype=torch.float64)
    marginal_weights = [torch.rand(size, dtype=torch.float64) for size in left.shape]
    for batch in (1, 2, 40):  # one plan has tables, the other has none
        rows = possible(plain, batch, rng)
        wanted = gradients(dense[tuple(rows.t())].log().sum(), t)
        for found in (
            gradients(left.log_prob(rows).sum(), t),
            gradients(sum(left.log_prob(row) for row in rows), t),
            gradients(left[rows].log().sum(), t),
        ):
            close(found, wanted)
    close(gradients((left.to_dense() * weights).sum(), t), gradients((dense * weights).sum(), t))
    shares = [
        dense.sum([a for a in axes if a != axis]) if left.ndim > 1 else dense for axis in axes
    ]
    wanted = gradients(sum((x * w).sum() for x, w in zip(shares, marginal_weights, strict=True)), t)
    values = left.marginals().values()
    found = gradients(sum((x * w).sum() for x, w in zip(values, marginal_weights, strict=True)), t)
    close(found, wanted)
    logs = torch.where(dense > 0, dense, 1.0).log()
    close(gradients(left.entropy(), t), gradients(-(dense * logs).sum(), t))
    assert all(g.isfinite().all() for g in gradients(left.entropy(samples=10), t))


@given(seed=st.integers(0, 10**9))
@settings(max_examples=40, derandomize=True)
def test_queries_of_masked_networks(seed):
    rng = random.Random(seed)
    t = masked(rng, max_edges=6)
    check_values_and_gradients(t, brute_force(t, differentiable=True), t, rng)


@given(seed=st.integers(0, 10**9))
@settings(max_examples=60, derandomize=True)
def test_conditions_on_masked_networks(seed):
    rng = random.Random(seed)
    t = masked(rng, max_edges=6)
    if t.ndim == 1:
        return
    dense = brute_force(t, differentiable=True)
    axes = sorted(rng.sample(range(t.ndim), rng.randint(1, t.ndim - 1)))
    fixed = {t.edges[a]: rng.randrange(t.shape[a]) for a in axes}
    for a in reversed(axes):
        dense = dense.select(a, fixed[t.edges[a]])
    left = t.condition(fixed)
    if dense.sum() > 0:
        check_values_and_gradients(left, dense / dense.sum(), t, rng)
        return
    zeros = [0] * left.ndim
    queries = [left.sum, left.to_dense, left.marginals, left.entropy, left.top_k]
    queries += [lambda: left[zeros], lambda: left.log_prob([zeros] * 20), lambda: left.sample(2)]
    queries += [lambda: left.rsample(2), lambda: left.marginal(left.edges[:1])]
    for query in queries:
        with pytest.raises(ValueError, match="the condition has probability zero"):
            query()


def test_an_impossible_entry_has_no_gradient():
    t = DagTensor(Dag.path(2), 3, rank=2, dtype=torch.float64)
    with torch.no_grad():
        t.core_1[0] = -inf
    for index in ([0, 0], [[0, 0]] * 20):
        log_prob = t.log_prob(index)
        assert (log_prob == -inf).all()
        assert all(not g.any() for g in gradients(log_prob.sum(), t))


def test_a_state_without_a_choice_is_refused():
    t = DagTensor(Dag.path(2), 3, rank=2)
    with torch.no_grad():
        t.core_1[:, 1] = -inf
    with pytest.raises(ValueError, match=r"edge \(1, 2\) contain NaN .* forbid every choice"):
        t.log_prob([0, 0])


def test_forbidden_choices_stay_so_in_training_and_other_ranks():
    t = DagTensor(Dag.complete(2), 3, rank=2, dtype=torch.float64)
    with torch.no_grad():
        t.core_0[1] = -inf
        t.core_2[2, 0] = -inf
    zero = t.to_dense() == 0
    assert zero.any()
    close(t.grow(4).to_dense(), t.to_dense())
    assert torch.equal(t.grow(4, noise=0.1).to_dense() == 0, zero)
    close(t.grow(4).shrink(2).to_dense(), t.to_dense())
    samples = t.sample(200)
    fitted, _ = fit_em(samples, t, max_sweeps=20)
    assert (fitted.to_dense()[zero] == 0).all()
    for optimizer in (
        torch.optim.Adam(t.parameters(), lr=0.1),
        torch.optim.SGD(t.parameters(), 1.0),
    ):
        for _ in range(5):
            optimizer.zero_grad()
            (-t.log_prob(samples).mean()).backward()
            optimizer.step()
    assert torch.equal(t.to_dense() == 0, zero)
    twin = DagTensor(Dag.complete(2), 3, rank=2, dtype=torch.float64)
    twin.load_state_dict(t.state_dict())
    assert torch.equal(twin.to_dense(), t.to_dense())


def test_choices_of_each_edge_forbid_without_a_mask():
    """Leaving a choice out of an edge is the same distribution, with fewer parameters."""
    names = ["AP", "PA", "I"]
    t = DagTensor(Dag.path(2), names, rank=2, dtype=torch.float64)
    with torch.no_grad():
        t.core_0[1] = -inf
    less = DagTensor(Dag.path(2), {(0, 1): ["AP", "I"], (1, 2): names}, 2, dtype=torch.float64)
    less._filled([t.core_0[[0, 2]], t.core_1])
    close(less.to_dense(), t.to_dense()[[0, 2]])
