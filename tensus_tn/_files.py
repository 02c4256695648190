"""Files: written whole or not at all, and read without trust."""

from __future__ import annotations

import csv
import errno
import io
import json
import math
import os
import struct
import sys
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

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


@contextmanager
def lock_folder(folder: Path, *, wait: bool) -> Iterator[None]:
    """Hold the lock of a folder; the system gives it back when a process ends, however it ends.

    Args:
        folder: It must exist. Where its file system has no locks, there is none to wait for.
        wait: Wait for a process that holds the lock, rather than raise a BlockingIOError.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(f"another process is at work in {folder}") from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP):
                raise
        yield
    finally:
        os.close(handle)


def size_limit(path: str | os.PathLike[str], max_bytes: int | None) -> int:
    """How many bytes the content of a file may take in memory.

    That is `max_bytes`; or, where it is None, 16 times the size of the file, but at least 256 MiB. A
    file that takes more was made to fill the memory, or is unusual enough for its reader to say so.
    """
    return max(1 << 28, 16 * os.path.getsize(path)) if max_bytes is None else max_bytes


def require_size(what: str, size: int, limit: int) -> None:
    """Refuse what would take more than so many bytes."""
    if size > limit:
        raise ValueError(
            f"{what} would take {size:,} bytes, above the limit of {limit:,}: if it is meant to, raise "
            "max_bytes"
        )


#: Arrays of `write_arrays` begin at multiples of this, so that a map of the file has them aligned.
_ALIGNMENT = 64
_PADDING = 0xD935  # the id of a field that Android's zipalign fills a header with


def write_arrays(path: str | os.PathLike[str], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write an uncompressed `.npz` file that numpy reads, and `map_arrays` maps.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "file.npz"
        >>> write_arrays(path, {"a": np.arange(3), "b": np.ones(2)})
        >>> map_arrays(path, "two arrays")["a"].tolist()
        [0, 1, 2]
    """

    def write(file: BinaryIO) -> None:
        with zipfile.ZipFile(file, "w") as archive:
            for name, array in arrays.items():
                info = zipfile.ZipInfo(f"{name}.npy")
                large = array.nbytes >= 1 << 30  # then zipfile adds a field of 20 bytes
                begin = file.tell() + 30 + len(info.filename) + 4 + 20 * large
                info.extra = struct.pack("<HH", _PADDING, -begin % _ALIGNMENT).ljust(
                    4 + -begin % _ALIGNMENT, b"\0"
                )
                with archive.open(info, "w", force_zip64=large) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)

    write_atomically(path, write)


def map_arrays(
    path: str | os.PathLike[str], what: str, *, verify: bool = False
) -> dict[str, NDArray[Any]]:
    """The arrays of a file that `write_arrays` wrote, mapped: read when they are used, and shared.

    Whatever is wrong with its headers and sizes is a ValueError that says so. A change of an array
    stays in this process.

    Args:
        path: The file.
        what: What it should be, for messages: it "is not" that.
        verify: Whether to read everything and compare its checksums.
    """
    name = os.fspath(path)
    try:
        with zipfile.ZipFile(path) as archive, open(path, "rb") as file:
            whole: NDArray[Any] = np.memmap(path, np.uint8, "c")
            if verify and (bad := archive.testzip()):
                raise zipfile.BadZipFile(f"{bad} is damaged")
            return {
                info.filename.removesuffix(".npy"): _mapped(whole, file, info)
                for info in archive.infolist()
            }
    except (*_DAMAGED, ValueError, OverflowError) as error:
        raise ValueError(f"{name} is not {what}: {error}") from error


def _mapped(whole: NDArray[Any], file: BinaryIO, info: zipfile.ZipInfo) -> NDArray[Any]:
    """The part of a mapped archive that is an array, aligned."""
    if info.compress_type != zipfile.ZIP_STORED:
        raise zipfile.BadZipFile(f"{info.filename} is compressed, so it can't be mapped")
    file.seek(info.header_offset + 26)
    name_size, extra_size = struct.unpack("<HH", file.read(4))
    start = info.header_offset + 30 + name_size + extra_size
    file.seek(start)
    shape, dtype = _read_header(file, info.filename)
    begin = file.tell()
    end = begin + math.prod(shape) * dtype.itemsize
    if end > min(start + info.file_size, len(whole)):
        raise zipfile.BadZipFile(f"{info.filename} is shorter than its shape {shape}")
    if begin % _ALIGNMENT or dtype.hasobject:
        raise zipfile.BadZipFile(f"{info.filename} is not laid out to be mapped")
    array: NDArray[Any] = np.ndarray(shape, dtype, whole, begin)
    return array


@contextmanager
def open_arrays(
    path: str | os.PathLike[str], what: str, max_bytes: int | None = None
) -> Iterator[Mapping[str, NDArray[Any]]]:
    """The arrays of an `.npz` file; whatever is wrong with it is a ValueError that says so.

    Sizes are checked before anything is read, and nothing in the file is executed.

    Args:
        path: The file.
        what: What it should be, for messages: it "is not" that.
        max_bytes: The most memory that the arrays may take, as for `size_limit`.
    """
    name = os.fspath(path)
    with open(path, "rb") as content:  # says so if there is none, or if it is a folder
        if not zipfile.is_zipfile(content):
            raise ValueError(f"{name} is not {what}: it is no zip archive")
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if info.filename.endswith(".npy"):
                    _check_header(archive, info)
            total = sum(info.file_size for info in archive.infolist())
            require_size(name, total, size_limit(path, max_bytes))
        with np.load(path, allow_pickle=False) as arrays:
            yield arrays
    except _DAMAGED as error:
        reason = error.args[0] if isinstance(error, KeyError) and error.args else error
        raise ValueError(f"{name} is not {what}: {reason}") from error


#: What zipfile, zlib and numpy raise for damaged, encrypted or exotic archives, and missing arrays.
_DAMAGED = (
    KeyError, IndexError, TypeError, AttributeError, EOFError, NotImplementedError, RuntimeError,
    struct.error, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def _check_header(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> None:
    """Refuse an array that is larger by its own words than in the archive: numpy would believe it."""
    with archive.open(info) as member:
        shape, dtype = _read_header(member, info.filename)
    if math.prod(shape) * dtype.itemsize > info.file_size:
        raise zipfile.BadZipFile(f"{info.filename} is shorter than its shape {shape}")


def _read_header(file: Any, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The shape and the type of an array, by its own words."""
    header = {(1, 0): np.lib.format.read_array_header_1_0}
    try:
        version = np.lib.format.read_magic(file)
        shape, _, dtype = header.get(version, np.lib.format.read_array_header_2_0)(file)
    except (ValueError, SyntaxError, tokenize.TokenError) as error:  # a header is a dict in Python
        raise zipfile.BadZipFile(f"{name} is no array: {error}") from error
    return shape, dtype
