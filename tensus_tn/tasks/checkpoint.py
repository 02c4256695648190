"""Files that are whole or absent: checkpoints and results."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import torch

FORMAT = "tensus_tn.checkpoint/1"


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file beside its place and move it there: a reader never sees a part of it.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "file"
        >>> write_atomically(path, lambda file: file.write(b"all of it"))
        >>> path.read_bytes()
        b'all of it'
    """
    make_folder(path.parent)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            write(file)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Make a folder, with its parents, where there is none; say so if a file is in the way."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        file = next(place for place in (path, *path.parents) if os.path.lexists(place))
        raise NotADirectoryError(f"can't make the folder {path}: {file} is a file") from error


def write_json(path: Path, value: Any) -> None:
    """Write JSON, as a whole."""
    text = json.dumps(value, indent=1)
    write_atomically(path, lambda file: file.write(text.encode()))


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write tensors and plain values, as a whole."""
    write_atomically(path, lambda file: torch.save({"format": FORMAT, **state}, file))


def load_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What `save_checkpoint` wrote; nothing in the file is executed."""
    if not os.path.exists(path):
        raise FileNotFoundError(f"there is no checkpoint {os.fspath(path)}")
    with open(path, "rb") as file:
        try:
            state = torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # torch raises many types, whose messages say little to a user
            raise ValueError(f"{os.fspath(path)} is not a checkpoint, or is damaged") from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise ValueError(f"{os.fspath(path)} is not a checkpoint of format {FORMAT}")
    return state
