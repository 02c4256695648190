"""Min-fill elimination: the order, and the pairs that it makes."""

import random

import pytest

from tensus_tn.network.elimination import min_fill_order, min_fill_pairs
from tests.network.networks import random_contraction


def test_a_tree_is_eliminated_from_its_leaves_without_fill():
    star = [(0, k) for k in range(1, 5)]
    assert list(min_fill_order(star, set()))[:3] == [1, 2, 3]


def test_kept_indices_are_not_eliminated():
    ring = [(0, 1), (1, 2), (2, 3), (3, 0)]
    assert set(min_fill_order(ring, {0, 2})) == {1, 3}


@pytest.mark.parametrize("seed", range(30))
def test_the_pairs_use_every_operand_once_and_leave_one(seed):
    inputs, output, sizes, _ = random_contraction(random.Random(seed))
    pairs = min_fill_pairs(dict(enumerate(inputs)), output, sizes, len(inputs))
    assert len(pairs) == len(inputs) - 1
    last = len(inputs) + len(pairs) - 1
    assert sorted(n for pair in pairs for n in pair) == list(range(last))
