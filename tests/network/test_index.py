"""Where an entry is: what an index may look like, and the errors of what it may not."""

import numpy as np
import pytest
import torch

from tensus_tn import Dag, DagTensor


@pytest.fixture
def tensor():
    return DagTensor(Dag.complete(2), choices={(0, 1): 2, (0, 2): 3, (1, 2): 4}, rank=2)


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        ((0, 1), ValueError, "3 integers, one an edge, got 2"),
        (5, ValueError, "3 integers, one an edge, got 1"),
        ([], ValueError, "3 integers, one an edge, got 0"),
        ((), ValueError, "3 integers, one an edge, got 0"),
        ((0, 3, 0), ValueError, "index 3 on axis 1 is out of range for 3 choices"),
        ((0, 0, -5), ValueError, "index -5 on axis 2 is out of range for 4 choices"),
        ((0, 0.5, 0), TypeError, "integers, got 0.5 on axis 1"),
        ((0, True, 0), TypeError, "integers, got True on axis 1"),
        (torch.zeros(3), TypeError, "integers, got a tensor of torch.float32"),
        (torch.zeros(5, 3), TypeError, "integers, got a tensor of torch.float32"),
        (torch.zeros(5, 3, dtype=torch.bool), TypeError, "torch.bool"),
        (torch.zeros(5, 4, dtype=torch.long), ValueError, r"index \(..., 3\), got \(5, 4\)"),
        (torch.tensor([[0, 0, 0], [0, 3, 0]]), ValueError, "index 3 on axis 1 of row 1"),
        (torch.tensor([[0, 0, 0], [0, 0, -5]]), ValueError, "index -5 on axis 2 of row 1"),
        (torch.tensor([[0, 0, 2**32 + 1]]), ValueError, "out of range for 4 choices"),
        (torch.zeros((), dtype=torch.long), ValueError, r"got \(\)"),
        (
            np.array([[0, 0, 2**64 - 1]], dtype=np.uint64),
            ValueError,
            "axis 2 of row 0 is out of range",
        ),
        (np.array([0, 0, 2**64 - 1], dtype=np.uint64), ValueError, "index 18446744073709551615 on"),
    ],
)
@pytest.mark.parametrize("query", ["entries", "log_prob"])
def test_bad_index(tensor, query, index, error, message):
    with pytest.raises(error, match=message):
        tensor[index] if query == "entries" else tensor.log_prob(index)


def test_integers_of_any_width(tensor):
    index = torch.tensor([[0, 1, 2], [1, 2, 3]])
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.uint64):
        torch.testing.assert_close(tensor[index.to(dtype)], tensor[index])
