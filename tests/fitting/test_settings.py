"""What the fits can be told, and what they refuse."""

import pytest

from tensus_tn.fitting.settings import Settings

GOOD = {
    "method": "als",
    "restarts": 1,
    "tol": 0.0,
    "max_sweeps": 5,
    "seed": 0,
    "nonnegative": False,
    "callback": None,
    "progress": None,
}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"method": "newton"}, ValueError, "method must be 'als' or 'gradient', got 'newton'"),
        ({"restarts": 0}, ValueError, "restarts must be a positive integer, got 0"),
        ({"max_sweeps": 0}, ValueError, "max_sweeps must be a positive integer"),
        ({"tol": -1.0}, ValueError, "tol must be a non-negative number"),
        ({"tol": float("nan")}, ValueError, "tol must be a non-negative number"),
        ({"callback": 5}, TypeError, "callback must be callable, got int"),
    ],
)
def test_bad_settings(change, error, message):
    Settings(**GOOD)
    with pytest.raises(error, match=message):
        Settings(**(GOOD | change))
