"""Checks of what callers pass in: each error says what was expected and what was given."""

from __future__ import annotations

import operator
from typing import Any


def check_size(what: str, value: Any) -> int:
    """Return `value`, a positive integer of any type, or raise a ValueError."""
    try:
        size = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:  # not an integer; a tensor of floats says so only when it is asked
        size = 0
    if size < 1:
        raise ValueError(f"{what} must be a positive integer, got {value!r}")
    return size
