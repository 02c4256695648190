"""Damage to files: what a disk, a broken copy or an enemy makes of them."""

import random
from typing import Any

import numpy as np


def damaged_bytes(rng: random.Random, content: bytes) -> bytes:
    """Bits flipped, a piece cut out, repeated, overwritten, inserted, or the end missing."""
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 8])):
        start = rng.randrange(len(data) + 1)
        piece = slice(start, start + rng.choice([1, 4, 100]))
        kind = rng.randrange(6)
        if kind == 0 and start < len(data):
            data[start] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[piece]
        elif kind == 2:
            data[start:start] = data[piece]
        elif kind == 3:
            data[piece] = bytes([rng.choice([0, 255])]) * len(data[piece])
        elif kind == 4:
            data[start:start] = rng.randbytes(rng.choice([1, 4, 16]))
        elif kind == 5:
            del data[start:]
    return bytes(data)


def damaged_mapping(rng: random.Random, values: dict[str, Any]) -> dict[str, Any]:
    """One value missing, or another in its place: the file itself stays whole."""
    key = rng.choice(list(values))
    if rng.random() < 0.15:
        return {name: value for name, value in values.items() if name != key}
    return {**values, key: damaged_value(rng, values[key])}


def damaged_value(rng: random.Random, value: Any) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.8:
        return damaged_mapping(rng, value)
    if isinstance(value, np.ndarray) and rng.random() < 0.8:
        return damaged_array(rng, value)
    return rng.choice([None, -1, 10**12, 0.5, float("nan"), "text", [], {}, [None], True])


def damaged_array(rng: random.Random, array: np.ndarray) -> np.ndarray:
    """Another dtype, shape or order, or an element that can't be."""
    kind = rng.randrange(6)
    if kind == 0:
        return array[: rng.randint(0, len(array))] if array.ndim else array[None]
    if kind == 1:
        return array.reshape(1, *array.shape)
    if kind == 2:
        dtype = rng.choice(["float16", "float64", "int8", "uint64", "complex64", "bool", "U1"])
        return array.astype(dtype) if array.dtype.kind in "biuf" else np.arange(array.size)
    if kind == 3 and array.ndim:
        return np.random.default_rng(rng.randrange(2**32)).permutation(array)
    if kind == 4 and array.ndim:
        return np.concatenate([array, array[:1]])
    changed = array.copy()
    if changed.size and changed.dtype.kind == "f":
        changed.flat[rng.randrange(changed.size)] = rng.choice([np.nan, np.inf, -1.0, 1e30])
    elif changed.size and changed.dtype.kind in "iu":
        changed.flat[rng.randrange(changed.size)] = rng.choice(
            [0, 1, 99, np.iinfo(array.dtype).max]
        )
    elif changed.size:
        changed.flat[rng.randrange(changed.size)] = changed.flat[rng.randrange(changed.size)]
    return changed
