"""Checkpoints: tensors and plain values, read without running anything that a file may hold."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from tensus_tn._files import write_atomically

FORMAT = "tensus_tn.checkpoint/1"


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write tensors and plain values, whole or not at all."""
    write_atomically(path, lambda file: torch.save({"format": FORMAT, **state}, file))


def load_checkpoint(path: str | os.PathLike[str], *keys: str) -> dict[str, Any]:
    """What `save_checkpoint` wrote, with at least these keys; nothing in the file is executed."""
    if not os.path.exists(path):
        raise FileNotFoundError(f"there is no checkpoint {os.fspath(path)}")
    with open(path, "rb") as file:
        try:
            state = torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # torch raises many types, whose messages say little to a user
            raise ValueError(f"{os.fspath(path)} is not a checkpoint, or is damaged") from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise ValueError(f"{os.fspath(path)} is not a checkpoint of format {FORMAT}")
    if missing := [key for key in keys if key not in state]:
        raise ValueError(f"{os.fspath(path)} is not a whole checkpoint: it lacks {missing}")
    return state
