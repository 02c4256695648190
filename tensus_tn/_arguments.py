"""Checks of what callers pass in: each error says what was expected and what was given."""

from __future__ import annotations

import operator
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def check_size(what: str, value: Any) -> int:
    """Return `value`, a positive integer of any type, or raise a ValueError."""
    try:
        size = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:  # not an integer; a tensor of floats says so only when it is asked
        size = 0
    if size < 1:
        raise ValueError(f"{what} must be a positive integer, got {value!r}")
    return size


def check_memory(
    what: str,
    number: int,
    item: torch.dtype | int,
    device: torch.device | str | None = None,
) -> None:
    """Raise a ValueError if so many items on the CPU are more than the machine's memory can hold.

    Without it the system would end the process; on another device torch raises an error itself.

    Args:
        what: The items.
        number: How many of them.
        item: The type of each, or its bytes.
        device: Where they are to be.
    """
    import torch

    each, kind = (item, "") if isinstance(item, int) else (item.itemsize, f" of {item}")
    size, memory = number * each, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if torch.device(device or torch.get_default_device()).type == "cpu" and size > memory:
        raise ValueError(
            f"{number:,} {what}{kind} take {size:,} bytes, more than the {memory:,} bytes of "
            f"memory that this machine has"
        )


def check_share(what: str, value: float) -> float:
    """Return `value`, a number from 0 to below 1, or raise a ValueError."""
    if not 0 <= value < 1:
        raise ValueError(f"{what} must be in [0, 1), got {value}")
    return value
