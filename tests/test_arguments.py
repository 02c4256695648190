"""Checks of what callers pass in: a clear error, before any work."""

import numpy as np
import pytest
import torch

from tensus_tn._arguments import check_size


@pytest.mark.parametrize("value", [1, np.int64(1), np.uint8(1), torch.tensor(1)])
def test_a_size_is_an_integer_of_any_type(value):
    assert check_size("rank", value) == 1
    assert type(check_size("rank", value)) is int


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "1", None, torch.tensor(1.0)])
def test_what_is_no_size_is_named(value):
    with pytest.raises(ValueError, match="rank must be a positive integer, got"):
        check_size("rank", value)
