"""Checks of what callers pass in: a clear error, before any work."""

import numpy as np
import pytest
import torch

from tensus_tn._arguments import check_memory, check_share, check_size


@pytest.mark.parametrize("value", [1, np.int64(1), np.uint8(1), torch.tensor(1)])
def test_a_size_is_an_integer_of_any_type(value):
    assert check_size("rank", value) == 1
    assert type(check_size("rank", value)) is int


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "1", None, torch.tensor(1.0)])
def test_what_is_no_size_is_named(value):
    with pytest.raises(ValueError, match="rank must be a positive integer, got"):
        check_size("rank", value)


def test_what_the_machine_cannot_hold_is_refused_with_its_size():
    check_memory("floats", 10**6, torch.float32)
    with pytest.raises(
        ValueError, match=r"floats of torch.float64 take 8,000,000,000,000,000 bytes"
    ):
        check_memory("floats", 10**15, torch.float64)
    check_memory("floats", 10**15, torch.float64, "meta")


def test_a_share_is_below_one():
    assert check_share("dropout", 0.5) == 0.5
    for value in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match=r"dropout must be in \[0, 1\), got"):
            check_share("dropout", value)
