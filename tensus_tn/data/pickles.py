"""Pickles of arrays from other projects, read without running anything that they may hold."""

from __future__ import annotations

import os
import pickle
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

_FORMATS = {
    f"{form}_{kind}": form for form in ("coo", "csc", "csr") for kind in ("matrix", "array")
}


class _Sparse:
    """What a pickle says about a scipy matrix: attributes that `_rebuilt` checks, no methods."""

    form = ""


class _Array:
    """What a pickle says about a numpy array; numpy's own would take any bytes for objects."""

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


def load_arrays(path: str | os.PathLike[str]) -> Any:
    """Numbers, strings, lists, dicts, numpy arrays and scipy sparse matrices from a pickle.

    Anything else is refused before it is made: a pickle can name any function and have it called.

    Raises:
        ValueError: If the pickle needs anything else, or is damaged.
    """
    name = os.fspath(path)
    with open(path, "rb") as file:
        try:
            return _rebuilt(_ArrayUnpickler(file, encoding="latin1").load())
        except pickle.UnpicklingError as error:
            raise ValueError(f"{name}: {error}") from error
        except Exception as error:  # a pickle is a program: a damaged one can fail in any way
            raise ValueError(f"{name} is not a pickle of arrays: {error!r}") from error


def _array(data: Any, dtype: _Dtype, shape: Any, order: Literal["C", "F"]) -> Any:
    raw = data.encode("latin1") if isinstance(data, str) else data
    return np.ndarray(shape, dtype.rebuilt(), buffer=raw, order=order).copy()


def _scalar(dtype: _Dtype, data: Any) -> Any:
    return _array(data, dtype, (), "C")[()]


def _reconstruct(cls: type, shape: Any, dtype: Any) -> Any:
    return _Array()


def _reconstructor(cls: type, base: type, state: Any) -> Any:
    if not (isinstance(cls, type) and issubclass(cls, _Sparse)):
        raise pickle.UnpicklingError(f"it makes a {cls!r}, but only arrays are loaded")
    return cls()


def _encode(text: str, encoding: str) -> bytes:
    return text.encode("latin1")


#: What pickles of arrays call; numpy's modules are left out, because they have moved over time.
_NUMPY: dict[str, Any] = {
    "ndarray": _Array,
    "dtype": _Dtype,
    "_reconstruct": _reconstruct,
    "scalar": _scalar,
    "_frombuffer": _array,
}
#: How protocols 0 and 1 make an object, and protocols up to 2 hold bytes.
_PYTHON: dict[tuple[str, str], Any] = {
    ("copy_reg", "_reconstructor"): _reconstructor,
    ("copyreg", "_reconstructor"): _reconstructor,
    ("__builtin__", "object"): object,
    ("builtins", "object"): object,
    ("_codecs", "encode"): _encode,
    ("__builtin__", "bytes"): lambda: b"",
}


class _ArrayUnpickler(pickle.Unpickler):
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


def _rebuilt(value: Any) -> Any:
    """Turn what was read into arrays, and into scipy matrices, whose indices are checked."""
    if isinstance(value, dict):
        return {key: _rebuilt(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_rebuilt(item) for item in value)
    if isinstance(value, _Array):
        return _array(value.data, value.dtype, value.shape, "F" if value.fortran else "C")
    if not isinstance(value, _Sparse):
        return value
    state = _rebuilt(value.__dict__)
    shape = tuple(int(n) for n in state["_shape"])
    if value.form == "coo":
        coords = state["coords"] if "coords" in state else (state["row"], state["col"])
        return sp.coo_array((state["data"], tuple(coords)), shape=shape).tocsr()
    make = sp.csr_array if value.form == "csr" else sp.csc_array
    matrix = make((state["data"], state["indices"], state["indptr"]), shape=shape)
    matrix.check_format(full_check=True)
    return matrix.tocsr()
