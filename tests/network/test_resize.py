"""Higher and lower ranks: the function stays where it can."""

import copy
import random

import pytest
import torch

from tensus_tn import Dag, DagTensor
from tests.network.networks import random_index, random_tensor


@pytest.mark.parametrize("parametrization", ["softmax", "free"])
@pytest.mark.parametrize("seed", range(12))
def test_grow_and_shrink_keep_the_function(seed, parametrization):
    rng = random.Random(seed)
    t = random_tensor(rng, parametrization)
    new = {}
    for node, old in zip(t.dag.inner, t.structure.ranks, strict=False):
        new[node] = old * rng.randint(1, 3) + (
            rng.randint(0, 2) if parametrization == "free" else 0
        )
    if t.ties == "global":
        new = next(iter(new.values()), 1)
    large = t.grow(new)
    assert large.num_parameters >= t.num_parameters
    torch.testing.assert_close(large.to_dense(), t.to_dense())
    old_ranks = dict(zip(t.dag.inner, t.structure.ranks, strict=False))
    small = large.shrink(t.structure.ranks[0] if t.ties == "global" else old_ranks)
    torch.testing.assert_close(small.to_dense(), t.to_dense())
    assert small.structure == t.structure


def test_grow_with_noise_parts_the_copies():
    t = DagTensor(Dag.complete(3), choices=3, rank=2)
    copies = t.grow(4).cores()[1, 2]
    torch.testing.assert_close(copies[:, :2, :2], copies[:, 2:, 2:])
    parted = t.grow(4, noise=0.1, generator=torch.Generator().manual_seed(0)).cores()[1, 2]
    assert (parted[:, :2, :2] - parted[:, 2:, 2:]).abs().max() > 1e-3


def test_bad_ranks_for_grow_and_shrink():
    t = DagTensor(Dag.complete(3), choices=3, rank=2)
    with pytest.raises(ValueError, match="multiple of the other, got 2 and 3"):
        t.grow(3)
    with pytest.raises(ValueError, match="from 2 to 1 is neither"):
        t.grow(1)
    with pytest.raises(ValueError, match="from 2 to 4 is neither"):
        t.shrink(4)


def test_shrink_merges_the_states_that_are_alike():
    """States 0 and 3, 1 and 2 are nearly equal: merging them changes the tensor hardly."""
    t = DagTensor(Dag.path(3), choices=4, rank=2, dtype=torch.float64).grow(4)
    order = torch.tensor([0, 1, 1, 0])
    cores = list(t.cores().values())
    shuffled = copy.deepcopy(t)._filled(
        [
            cores[0][:, :, order].log(),
            cores[1][:, order][:, :, order].log() + 1e-4 * torch.randn(4, 4, 4),
            cores[2][:, order].log(),
        ]
    )
    torch.testing.assert_close(
        shuffled.shrink(2).to_dense(), shuffled.to_dense(), atol=1e-4, rtol=0
    )


def test_growing_sharp_cores_keeps_their_logarithms():
    """Probabilities that underflow must not become zeros that nothing can undo."""
    t = DagTensor(Dag.complete(3), choices=3, rank=2, init_scale=80.0)
    index = random_index(t.shape, 50)
    log_prob = t.log_prob(index)
    assert (log_prob < -100).any()
    torch.testing.assert_close(t.grow(4).log_prob(index), log_prob)
    torch.testing.assert_close(t.grow(4).shrink(2).log_prob(index), log_prob)
