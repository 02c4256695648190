"""Numbers to fit: scaled without overflow, and refused by name."""

import numpy as np
import pytest
import torch

from tensus_tn.fitting.values import as_tensor, check_real, check_values, to_norm_one


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_scaling_does_not_leave_the_range(scale):
    x = torch.tensor([3.0, 4.0], dtype=torch.float64)
    scaled = to_norm_one(x * scale)
    torch.testing.assert_close(scaled.values, x / 5)
    assert scaled.norm == pytest.approx(5 * scale)


def test_zeros_and_rounding():
    scaled = to_norm_one(torch.zeros(3, dtype=torch.float32))
    assert scaled.norm == 1
    assert not scaled.values.any()
    assert scaled.values.dtype == torch.float64
    assert scaled.rounding == pytest.approx(4 * 2**-23)
    assert to_norm_one(torch.zeros(3).double()).rounding == 1e-10


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        (
            torch.ones(2).long(),
            TypeError,
            "x must be a floating-point or complex tensor, got a tensor of",
        ),
        (torch.ones(2, 2).to_sparse(), TypeError, "dense tensor, got torch.sparse_coo"),
        (torch.tensor([1.0, float("nan")]), ValueError, r"finite, got nan at \[1\]"),
    ],
)
def test_what_is_refused(values, error, message):
    with pytest.raises(error, match=message):
        check_values("x", values)


def test_arrays_are_copied_and_other_things_refused():
    array = np.arange(6.0)[::-2]
    tensor = as_tensor("x", array)
    assert tensor.tolist() == [5, 3, 1]
    array[0] = 7
    assert tensor[0] == 5
    assert as_tensor("x", tensor) is tensor
    with pytest.raises(TypeError, match="x must be a tensor or an array, got list"):
        as_tensor("x", [1.0])


def test_complex_numbers():
    scaled = to_norm_one(torch.tensor([3j, 4.0], dtype=torch.complex64))
    assert scaled.norm == pytest.approx(5)
    assert scaled.values.dtype == torch.complex128
    assert scaled.dtype == torch.complex64
    with pytest.raises(ValueError, match=r"finite, got \(?nan"):
        check_values("x", torch.tensor([complex(float("nan"), 1)]))
    with pytest.raises(TypeError, match="x must be real numbers here"):
        check_real("x", torch.ones(1, dtype=torch.complex64))
