"""Rated pairs: what stays an edge, what is to be predicted."""

import numpy as np
import pytest

from tensus_tn.data.recommendation import split_pairs


def test_positive_pairs_are_drawn_in_the_steps_of_the_protocol():
    pairs = np.stack([np.arange(40), np.arange(40) % 7], 1).astype(np.int64)
    liked = np.arange(40) % 3 > 0
    result = split_pairs(pairs, liked, (5, 6))
    random, order = np.random.RandomState(5), np.flatnonzero(liked)
    random.shuffle(order)
    assert len(order) == 26
    hidden = order[13:]
    random.shuffle(hidden)
    assert result.kept.tolist() == pairs[order[:13]].tolist()
    for part, ids in zip(("train", "val", "test"), np.split(hidden, [7, 10]), strict=True):
        assert result.positive[part].tolist() == pairs[ids].tolist()


def test_negative_pairs_are_filled_up_with_unrated_ones():
    pairs = np.stack([np.repeat(np.arange(6), 2), np.arange(12) % 6], 1).astype(np.int64)
    liked = np.arange(12) > 0
    result = split_pairs(pairs, liked, (0, 0))
    negative = np.concatenate(list(result.negative.values())).tolist()
    assert len(negative) == 5
    assert len({tuple(p) for p in negative}) == 5
    rated = pairs.tolist()
    assert sum(p in rated for p in negative) == 1
    assert rated[0] in negative
    full = np.stack([np.repeat(np.arange(4), 4), np.tile(np.arange(4), 4)], 1).astype(np.int64)
    with pytest.raises(ValueError, match="only 0 pairs"):
        split_pairs(full, np.ones(16, dtype=bool), (0, 0))
