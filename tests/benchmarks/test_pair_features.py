"""Features of pairs: walks as products of dense matrices, and no label of a pair in its own."""

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn")

from benchmarks.reproduce.pair_features import pair_features, regression
from tensus_tn.data import Dataset, NodePairs, Relation
from tensus_tn.tasks import make_task
from tests.tasks.problems import small_links

COUNTS = {"user": 7, "item": 5, "brand": 3}


def shop(seed=0):
    """Random users, items and brands; users know users."""
    g = torch.Generator().manual_seed(seed)
    start = {"user": 0, "item": 7, "brand": 12}
    relations = {}
    for name, first, second in (
        ("UI", "user", "item"),
        ("IB", "item", "brand"),
        ("UU", "user", "user"),
    ):
        edges = (torch.rand(COUNTS[first], COUNTS[second], generator=g) < 0.5).nonzero().T
        edges = edges + torch.tensor([[start[first]], [start[second]]])
        relations[name] = Relation(first, second, edges)
        if first != second:
            relations[name[::-1]] = Relation(second, first, edges.flip(0))
    pairs = torch.cartesian_prod(torch.arange(7), torch.arange(7, 12))
    pairs = pairs[torch.randperm(35, generator=g)]
    splits, sizes = ("train", "val", "test"), [9, 4, 4]
    sides = [dict(zip(splits, p.split(sizes), strict=True)) for p in pairs[:34].chunk(2)]
    return Dataset("shop", COUNTS, relations, NodePairs("user", "item", *sides))


def dense(data, name):
    relation = data.relations[name]
    rows, columns = data.slices[relation.source], data.slices[relation.destination]
    matrix = torch.zeros(data.num_nodes, data.num_nodes, dtype=torch.float64)
    matrix[tuple(relation.edges)] = 1.0
    return matrix[rows, columns].numpy()


def by_row(a):
    return a / np.maximum(a.sum(1, keepdims=True), 1)


@pytest.mark.parametrize("seed", range(5))
def test_walks_are_products_of_matrices(seed):
    data = shop(seed)
    task = make_task(data, "diffmg")
    ui, iu, ib, bi, uu = (dense(data, name) for name in ("UI", "IU", "IB", "BI", "UU"))
    chains = [[ui, iu, ui], [ui, ib, bi], [uu, ui], [uu, uu, ui]]
    found = pair_features(task)
    for split, x in found.items():
        users, items = task.pairs[split].numpy()
        columns = [tuple(np.round(column, 4)) for column in x.T]
        for chain in chains:
            forward, backward = [by_row(a) for a in chain], [by_row(a.T).T for a in chain]
            for matrices, scaled in ((chain, np.log1p), (forward, np.sqrt), (backward, np.sqrt)):
                expected = scaled(np.linalg.multi_dot(matrices)[users, items])
                assert tuple(np.round(expected, 4)) in columns
        spectrum = by_degree(ui)
        assert any(np.allclose(column, spectrum[users, items], atol=1e-3) for column in x.T)


def by_degree(a):
    """The four largest singular values of five, scaled as the embedding is."""
    users, items = (np.sqrt(np.maximum(a.sum(axis), 1)) for axis in (1, 0))
    left, size, right = np.linalg.svd(a / users[:, None] / items)
    return (left[:, :4] * size[:4]) @ right[:4] * np.sqrt(7 * 5)


def test_a_training_pair_is_not_counted_in_its_own_features():
    task = make_task(small_links(), "diffmg")
    alone = torch.arange(20).expand(
        2, -1
    )  # every user and every item in one pair: half are positive
    task.pairs["train"] = task.pairs["val"] = alone
    counts = {split: x[:, -6:] for split, x in pair_features(task).items()}
    for columns in ([0, 1], [3, 4]):  # of the user, of the item: positive and negative
        assert (counts["train"][:, columns] == 0).all()
        seen = counts["val"][:, columns]
        np.testing.assert_allclose(seen[:10], [[np.log(2), 0]] * 10)
        np.testing.assert_allclose(seen[10:], [[0, np.log(2)]] * 10)
    known = np.bincount(task.known[1], minlength=20)
    np.testing.assert_allclose(counts["val"][10:, 5], np.log((1 + known[10:]) / 2))


def test_the_regression_finds_a_likeness():
    scores = regression(make_task(small_links(), "diffmg"))
    assert scores["test"] > 0.95
    assert scores["val"] > 0.95
