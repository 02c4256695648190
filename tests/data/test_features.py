"""Rows of features of one length."""

import pytest
import torch

from tensus_tn.data import even_rows
from tensus_tn.data.features import like_words

LAYOUTS = {
    "dense": lambda x: x,
    "coo": lambda x: x.to_sparse(),
    "csr": lambda x: x.to_sparse_csr(),
}


def some(num=7, size=5):
    x = (
        torch.randn(num, size, generator=torch.Generator().manual_seed(0))
        * (torch.arange(num) % 3)[:, None]
    )
    return x * (torch.arange(size) % 2)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_keep_their_direction_and_get_the_mean_length(layout):
    x = some()
    lengths = x.norm(dim=1)
    expected = x.clone()
    for row in lengths.nonzero().flatten():
        expected[row] *= lengths[lengths > 0].mean() / lengths[row]
    even = even_rows(LAYOUTS[layout](x)).to_dense()
    torch.testing.assert_close(even, expected)
    assert int((even.norm(dim=1) == 0).sum()) == 3


@pytest.mark.parametrize("layout", ["dense", "coo"])
@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (2, 3)])
def test_nothing_to_scale(layout, shape):
    x = LAYOUTS[layout](torch.zeros(shape))
    assert torch.equal(even_rows(x).to_dense(), torch.zeros(shape))


def test_even_rows_stay():
    x = even_rows(some())
    torch.testing.assert_close(even_rows(x), x)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_words_are_not_negative_and_few(layout):
    few = torch.tensor([[0.0, 0.0, 2.0], [1.0, 0.0, 0.0]])
    numbers = {"few": few, "negative": -few, "many": few + 1, "none": few * 0}
    found = {name: like_words(LAYOUTS[layout](x)) for name, x in numbers.items()}
    assert found == {"few": True, "negative": False, "many": False, "none": True}
