"""Degrees and spectral embeddings, against dense arithmetic."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tensus_tn.data import Dataset, NodePairs, Relation, planted
from tensus_tn.data.structure import known_pairs, log_degrees, spectral

USERS, ITEMS, BRANDS = 7, 5, 2


def shop(buys=None, counts=(USERS, ITEMS, BRANDS)):
    """Users, items and brands; purchases (2, E) in local ids, given to both directions by halves."""
    g = torch.Generator().manual_seed(0)
    if buys is None:
        buys = torch.stack([torch.randint(n, (15,), generator=g) for n in counts[:2]])
    edges = buys + torch.tensor([[0], [counts[0]]])
    half = edges.shape[1] // 2
    made = torch.stack([torch.arange(counts[1]), torch.arange(counts[1]) % counts[2] + counts[1]])
    relations = {
        "UI": Relation("item", "user", edges[:, :half].flip(0)),
        "IU": Relation("user", "item", edges[:, half:]),
        "BI": Relation("item", "brand", made + counts[0]),
    }
    pairs = dict.fromkeys(("train", "val", "test"), torch.tensor([[0, counts[0]]]))
    names = dict(zip(("user", "item", "brand"), counts, strict=True))
    return Dataset("shop", names, relations, NodePairs("user", "item", pairs, pairs)), buys


def matrix(buys):
    dense = np.zeros((USERS, ITEMS))
    dense[buys[0], buys[1]] = 1
    return dense


def test_known_pairs_are_the_edges_of_both_directions_each_once():
    data, buys = shop()
    found = list(map(tuple, known_pairs(data).T.tolist()))
    assert len(found) == len(set(found))
    assert set(found) == set(map(tuple, buys.T.tolist()))


def test_spectral_vectors_multiply_to_the_normalised_edges():
    data, buys = shop()
    found = spectral(data, rank=ITEMS - 1)
    k = matrix(buys.numpy())
    rows, columns = np.maximum(k.sum(1), 1), np.maximum(k.sum(0), 1)
    left, size, right = np.linalg.svd(k / np.sqrt(rows[:, None] * columns), full_matrices=False)
    best = (left[:, : ITEMS - 1] * size[: ITEMS - 1]) @ right[: ITEMS - 1]
    product = found["user"].numpy() @ found["item"].numpy().T / np.sqrt(USERS * ITEMS)
    np.testing.assert_allclose(product, best, atol=1e-5)
    assert torch.equal(spectral(data)["user"], spectral(data)["user"])


def standardised(ids, kind, data):
    degree = torch.bincount(ids, minlength=data.num_nodes)[data.slices[kind]].float().log1p()
    return (degree - degree.mean()) / degree.std()


def test_degrees_of_both_ends_are_standardised_within_their_type():
    data, _ = shop()
    ui, iu, bi = (data.relations[name].edges for name in ("UI", "IU", "BI"))
    expected = {
        "user": [standardised(ui[1], "user", data), standardised(iu[0], "user", data)],
        "item": [standardised(ui[0], "item", data), standardised(iu[1], "item", data)],
        "brand": [standardised(bi[1], "brand", data)],  # all items have one brand: it says nothing
    }
    for kind, found in log_degrees(data).items():
        torch.testing.assert_close(found, torch.stack(expected[kind], 1))


def test_the_other_direction_of_a_relation_adds_no_degrees():
    data, _ = shop()
    bought = data.relations["UI"]
    back = Relation("user", "item", bought.edges.flip(0))
    both = replace(data, relations={"UI": bought, "IU": back})
    one = replace(data, relations={"UI": bought})
    for kind, found in log_degrees(both).items():
        torch.testing.assert_close(found, log_degrees(one)[kind])
    assert log_degrees(one)["user"].shape == (USERS, 1)


@pytest.mark.parametrize("counts", [(7, 5, 2), (1, 1, 1), (7, 1, 1)])
def test_graphs_that_say_nothing_have_empty_columns(counts):
    data, _ = shop(torch.zeros(2, 0, dtype=torch.long), counts)
    assert known_pairs(data).shape == (2, 0)
    assert [x.shape for x in spectral(data).values()] == [(counts[0], 0), (counts[1], 0)]
    assert log_degrees(data)["user"].shape == (counts[0], 0)


def test_labels_have_no_pairs():
    with pytest.raises(TypeError, match="expected pairs to be predicted, 'planted' has NodeLabels"):
        spectral(planted(num_nodes=8))
