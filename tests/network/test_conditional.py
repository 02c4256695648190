"""A network with choices fixed answers as the slice of the dense tensor."""

import copy
import random

import pytest
import torch

from tensus_tn import Dag, DagTensor
from tests.network.networks import brute_force, random_index, random_tensor


@pytest.mark.parametrize("parametrization", ["softmax", "free"])
@pytest.mark.parametrize("seed", range(40))
def test_conditions_equal_slices(seed, parametrization):
    rng = random.Random(f"{seed} {parametrization}")
    t = random_tensor(rng, parametrization)
    if t.ndim == 1:
        with pytest.raises(ValueError, match="at least one edge free"):
            t.condition({t.edges[0]: 0})
        return
    axes = sorted(rng.sample(range(t.ndim), rng.randint(1, t.ndim - 1)))
    fixed = {t.edges[a]: rng.randrange(t.shape[a]) for a in axes}
    dense = brute_force(t)
    for a in reversed(axes):
        dense = dense.select(a, fixed[t.edges[a]])
    if parametrization == "softmax":
        dense = dense / dense.sum()
    left = t.condition(fixed)
    first, *others = fixed.items()
    torch.testing.assert_close(left.to_dense(), dense)
    torch.testing.assert_close(t.condition(dict([first])).condition(dict(others)).to_dense(), dense)
    torch.testing.assert_close(left.sum(), dense.sum())
    index = random_index(left.shape, 10)
    torch.testing.assert_close(left[index], dense[tuple(index.t())])
    torch.testing.assert_close(left[tuple(index[0].tolist())], dense[tuple(index[0])])
    for axis, value in enumerate(left.marginals().values()):
        rest = [a for a in range(left.ndim) if a != axis]
        torch.testing.assert_close(value, dense.sum(rest) if rest else dense)
    if parametrization == "softmax":
        torch.testing.assert_close(left.log_prob(index), dense[tuple(index.t())].log())
        torch.testing.assert_close(left.entropy(), -(dense * dense.log()).sum())


@pytest.mark.parametrize("query", ["entries", "dense", "marginals", "sample", "top_k"])
def test_an_impossible_condition_is_refused(query):
    t = DagTensor(Dag.path(3), choices=3, rank=2)
    with torch.no_grad():
        t.core_0[0] = -float("inf")
    left = t.condition({(0, 1): 0})
    run = {
        "entries": lambda: left[0, 0],
        "dense": left.to_dense,
        "marginals": left.marginals,
        "sample": lambda: left.sample(3),
        "top_k": left.top_k,
    }
    with pytest.raises(ValueError, match="probability zero"):
        run[query]()


def test_a_conditional_follows_the_parameters():
    t = DagTensor(Dag.complete(2), choices=3, rank=2)
    left = t.condition({(0, 1): 0})
    before = left.to_dense()
    t.reset_parameters()
    assert not torch.allclose(left.to_dense(), before)
    torch.testing.assert_close(left.to_dense(), copy.deepcopy(left).to_dense())


def test_marginals_on_a_long_path_sum_to_one():
    t = DagTensor(Dag.path(1000), choices=3, rank=2)
    left = t.condition(dict.fromkeys(t.edges[:-1:2], 1))
    for edges in ([(1, 2)], [(1, 2), (3, 4)], [(999, 1000)]):
        torch.testing.assert_close(left.marginal(edges).sum(), torch.ones(()), rtol=1e-6, atol=0)
    for value in left.marginals().values():
        torch.testing.assert_close(value.sum(), torch.ones(()), rtol=3e-6, atol=0)
