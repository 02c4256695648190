"""Features of nodes, made ready for a network."""

from __future__ import annotations

import torch
from torch import Tensor


def even_rows(x: Tensor) -> Tensor:
    """Features (n, F), dense or sparse, with rows of one Euclidean length: the mean of theirs.

    `x_i mean_j(|x_j|) / |x_i|`: in a bag of words a node with many words then weighs no more than one
    with few. Rows of zeros stay as they are, and are not counted in the mean.

    Example:
        >>> even_rows(torch.tensor([[2.0, 0.0], [0.0, 4.0], [0.0, 0.0]]))
        tensor([[3., 0.],
                [0., 3.],
                [0., 0.]])
    """
    if x.layout == torch.strided:
        return x * _scales(x.norm(dim=1))[:, None]
    coo = x.to_sparse_coo().coalesce()
    (rows, _), values = coo.indices(), coo.values()
    squares = values.new_zeros(len(x)).index_add(0, rows, values.square())
    even = values * _scales(squares.sqrt())[rows]
    return torch.sparse_coo_tensor(
        coo.indices(), even, x.shape, is_coalesced=True, check_invariants=False
    )


def like_words(x: Tensor) -> bool:
    """Whether features could be words that nodes have: none is negative, and most are zero.

    Example:
        >>> like_words(torch.eye(3)), like_words(torch.tensor([[21.0], [35.0]]))
        (True, False)
    """
    values = x if x.layout == torch.strided else x.to_sparse_coo().coalesce().values()
    return bool((values >= 0).all()) and int(values.count_nonzero()) < x.numel() / 2


def _scales(lengths: Tensor) -> Tensor:
    """What rows of these lengths are multiplied by."""
    some = lengths > 0
    return torch.where(some, lengths[some].mean() / lengths, 1.0)
