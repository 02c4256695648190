"""Files that are written whole or not at all, and the folders they go into."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

#: The end of the name of a file that is being written.
PARTIAL = ".partial"


def write_atomically(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> None:
    """Write a file beside its place and move it there: a reader never sees a part of it.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "file"
        >>> write_atomically(path, lambda file: file.write(b"all of it"))
        >>> path.read_bytes()
        b'all of it'
    """
    partial = Path(f"{os.fspath(path)}.{os.getpid()}{PARTIAL}")
    try:
        with partial.open("wb") as file:
            write(file)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON."""
    text = json.dumps(value, indent=1)
    write_atomically(path, lambda file: file.write(text.encode()))


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows with the same keys as a table."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, lambda file: file.write(text.getvalue().encode()))


def make_folder(path: Path) -> None:
    """Make a folder, with its parents, where there is none; say so if a file is in the way."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        file = next(place for place in (path, *path.parents) if os.path.lexists(place))
        raise NotADirectoryError(f"can't make the folder {path}: {file} is a file") from error
