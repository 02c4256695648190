"""Pickles of arrays from other projects, read without running anything that they may hold.

A pickle is a program. Ours can make numbers, text, lists, tuples, dicts and the descriptions of
arrays and matrices, which are made into real ones at the end, when it is known what they will take.
"""

from __future__ import annotations

import io
import math
import os
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp

from tensus_tn._files import require_size, size_limit

_FORMATS = {
    f"{form}_{kind}": form for form in ("coo", "csc", "csr") for kind in ("matrix", "array")
}
_DEEPEST = 64  # lists within lists; numpy has no more axes
_POINTER = 8  # bytes of an item of a list
_PLAIN = (str, bytes, bytearray, int, float, type(None))


def load_arrays(path: str | os.PathLike[str], *, max_bytes: int | None = None) -> Any:
    """Numbers, strings, lists, dicts, numpy arrays and scipy sparse matrices from a pickle.

    Anything else is refused before it is made: a pickle can name any function and have it called.

    Args:
        path: The file.
        max_bytes: The most memory that the content may take; 16 times the size of the file, but at
            least 256 MiB, if None. What a pickle refers to many times counts as often.

    Raises:
        ValueError: If the pickle needs anything else, or is damaged.
    """
    name, limit = os.fspath(path), size_limit(path, max_bytes)
    content = Path(path).read_bytes()
    try:
        described = _Unpickler(io.BytesIO(content), encoding="latin1").load()
        return _Builder(limit).build(described, 0)[0]
    except (pickle.UnpicklingError, _TooLargeError) as error:
        raise ValueError(f"{name}: {error}") from error
    except Exception as error:  # a damaged program can fail in any way
        raise ValueError(f"{name} is not a pickle of arrays: {error!r}") from error


class _TooLargeError(ValueError):
    """What is described would take too much memory."""


class _Sparse:
    """What a pickle says about a scipy matrix: attributes that `_Builder` checks, no methods."""

    form = ""


class _Array:
    """What a pickle says about a numpy array; numpy's own would take any bytes for objects."""

    scalar = False

    def __setstate__(self, state: Any) -> None:
        _, self.shape, self.dtype, self.fortran, self.data = state


class _Dtype:
    """What a pickle says about the type of an array."""

    def __init__(self, text: str, align: bool = False, copy: bool = False) -> None:
        self.text = text
        self.order: Any = "="

    def __setstate__(self, state: Any) -> None:
        self.order = state[1]

    def rebuilt(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = np.dtype(str(self.text)).newbyteorder(self.order)
        if dtype.kind not in "biufcSU":
            raise pickle.UnpicklingError(f"it holds {dtype}, but only numbers and text are loaded")
        return dtype


@dataclass(frozen=True)
class _Encoded:
    """Bytes, as protocols up to 2 hold them: in a text."""

    text: str


def _frombuffer(data: Any, dtype: Any, shape: Any, order: Any) -> _Array:
    array = _Array()
    array.__setstate__((1, shape, dtype, order == "F", data))
    return array


def _scalar(dtype: Any, data: Any) -> _Array:
    array = _frombuffer(data, dtype, (), "C")
    array.scalar = True
    return array


def _reconstruct(cls: type, shape: Any, dtype: Any) -> _Array:
    return _Array()


def _reconstructor(cls: type, base: type, state: Any) -> Any:
    if not (isinstance(cls, type) and issubclass(cls, _Sparse)):
        raise pickle.UnpicklingError(f"it makes a {cls!r}, but only arrays are loaded")
    return cls()


#: What pickles of arrays call; numpy's modules are left out, because they have moved over time.
_NUMPY: dict[str, Any] = {
    "ndarray": _Array,
    "dtype": _Dtype,
    "_reconstruct": _reconstruct,
    "scalar": _scalar,
    "_frombuffer": _frombuffer,
}
#: How protocols 0 and 1 make an object, and protocols up to 2 hold bytes.
_PYTHON: dict[tuple[str, str], Any] = {
    ("copy_reg", "_reconstructor"): _reconstructor,
    ("copyreg", "_reconstructor"): _reconstructor,
    ("__builtin__", "object"): object,
    ("builtins", "object"): object,
    ("_codecs", "encode"): lambda text, encoding: _Encoded(text),
    ("__builtin__", "bytes"): lambda: b"",
}


_InPython: Any = pickle._Unpickler  # its instructions have no types


class _Unpickler(_InPython):
    """Python's own unpickler in Python, where every instruction can be looked at.

    The one in C takes sizes and numbers of memo cells at their word, hashes tuples of tuples for
    ever, and lets a pickle set attributes of whatever it can name.
    """

    dispatch: ClassVar[dict[int, Any]] = dict(_InPython.dispatch)

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] == "numpy" and name in _NUMPY:
            return _NUMPY[name]
        if module.startswith("scipy.sparse") and name in _FORMATS:
            return type(name, (_Sparse,), {"form": _FORMATS[name]})
        if (module, name) in _PYTHON:
            return _PYTHON[module, name]
        raise pickle.UnpicklingError(
            f"it asks for {module}.{name}, but only numpy arrays and scipy matrices are loaded"
        )

    def load_bytearray8(self) -> None:
        size = int.from_bytes(self.read(8), "little")
        self.append(bytearray(self.read(min(size, 1 << 62))))

    def load_build(self) -> None:
        if not isinstance(self.stack[-2], (_Array, _Dtype, _Sparse)):
            raise pickle.UnpicklingError(f"it sets attributes of {type(self.stack[-2]).__name__}")
        super().load_build()

    def load_setitem(self) -> None:
        _require_key(self.stack[-2])
        super().load_setitem()

    def load_setitems(self) -> None:
        for key in self.stack[::2]:  # the items since the mark
            _require_key(key)
        super().load_setitems()

    def load_dict(self) -> None:
        for key in self.stack[::2]:
            _require_key(key)
        super().load_dict()

    def refuse(self) -> None:
        raise pickle.UnpicklingError("it holds sets, but only lists, tuples and dicts are loaded")

    dispatch[pickle.BYTEARRAY8[0]] = load_bytearray8
    dispatch[pickle.BUILD[0]] = load_build
    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.SETITEMS[0]] = load_setitems
    dispatch[pickle.DICT[0]] = load_dict
    dispatch[pickle.EMPTY_SET[0]] = refuse
    dispatch[pickle.FROZENSET[0]] = refuse


def _require_key(key: Any) -> None:
    """Refuse what takes long to hash: a tuple of the same tuple twice, and so on."""
    if not isinstance(key, (str, bytes, int, float, type(None))):
        raise pickle.UnpicklingError(f"a key of a dict is a {type(key).__name__}, not text")


class _Builder:
    """Makes arrays and matrices of their descriptions, each once, and counts what all take."""

    def __init__(self, limit: int) -> None:
        self.limit, self.made = limit, 0
        # By identity; the description is kept, so that no other object gets its number.
        self.done: dict[int, tuple[Any, Any, int]] = {}

    def build(self, value: Any, depth: int) -> tuple[Any, int]:
        """What a description stands for, and the bytes that it takes with all that it refers to."""
        if depth > _DEEPEST:
            raise pickle.UnpicklingError(f"it is nested more than {_DEEPEST} deep")
        if id(value) not in self.done:
            built, size = self._build(value, depth)
            self._require(size)
            self.done[id(value)] = value, built, size
        return self.done[id(value)][1:]

    def _build(self, value: Any, depth: int) -> tuple[Any, int]:
        if isinstance(value, dict):
            items, size = self._items(value.values(), depth)
            return dict(zip(value, items, strict=True)), size
        if isinstance(value, (list, tuple)):
            items, size = self._items(value, depth)
            return type(value)(items), size
        if isinstance(value, _Encoded):
            return self._bytes(value), len(value.text)
        if isinstance(value, _Array):
            array = self._array(value)
            return array[()] if value.scalar else array, array.nbytes
        if isinstance(value, _Sparse):
            state, size = self.build(dict(value.__dict__), depth + 1)
            return self._matrix(value.form, state), size
        if not isinstance(value, _PLAIN):  # a description that nothing was made of, or a function
            name = value.__name__ if isinstance(value, type) else type(value).__name__
            raise pickle.UnpicklingError(
                f"it holds a {name.strip('_')}, but only arrays are loaded"
            )
        return value, _POINTER

    def _items(self, values: Any, depth: int) -> tuple[list[Any], int]:
        built = [self.build(value, depth + 1) for value in values]
        return [item for item, _ in built], sum(size + _POINTER for _, size in built)

    def _bytes(self, data: Any) -> Any:
        if isinstance(data, _Encoded):
            data = data.text
        if isinstance(data, str):
            self._make(len(data))
            return data.encode("latin1")
        return data

    def _array(self, described: _Array) -> Any:
        dtype, shape = described.dtype.rebuilt(), tuple(int(n) for n in described.shape)
        self._make(math.prod(shape) * dtype.itemsize)
        order: Literal["F", "C"] = "F" if described.fortran else "C"
        raw = self._bytes(described.data)
        return np.ndarray(shape, dtype, buffer=raw, order=order).copy()

    def _matrix(self, form: str, state: dict[str, Any]) -> Any:
        """A scipy matrix in CSR form, whose indices are checked."""
        shape = tuple(int(n) for n in state["_shape"])
        self._make(_POINTER * sum(shape))
        if form == "coo":
            coords = state["coords"] if "coords" in state else (state["row"], state["col"])
            return sp.coo_array((state["data"], tuple(coords)), shape=shape).tocsr()
        make = sp.csr_array if form == "csr" else sp.csc_array
        matrix = make((state["data"], state["indices"], state["indptr"]), shape=shape)
        matrix.check_format(full_check=True)
        return matrix.tocsr()

    def _make(self, size: int) -> None:
        self.made += size
        self._require(self.made)

    def _require(self, size: int) -> None:
        try:
            require_size("its content", size, self.limit)
        except ValueError as error:
            raise _TooLargeError(str(error)) from None
