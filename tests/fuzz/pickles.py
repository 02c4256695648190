"""Pickles: whole ones come back, damaged and hostile ones are refused; nothing runs, nothing swells."""

import pickle
import pickletools
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from tensus_tn.data.pickles import load_arrays
from tests.fuzz.damage import damaged_bytes

PLAIN = (dict, list, tuple, set, frozenset, str, bytes, bytearray, int, float, complex, bool)


def check(rng: random.Random) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.pkl"
        if rng.random() < 0.3:
            path.write_bytes(random_program(rng))
            return read_or_refuse(path)
        value = random_value(rng, 3)
        whole = pickle.dumps(value, rng.randint(0, pickle.HIGHEST_PROTOCOL))
        path.write_bytes(whole)
        assert_same(load_arrays(path), value)
        path.write_bytes(damaged_bytes(rng, whole))
        return read_or_refuse(path)


def read_or_refuse(path: Path) -> None:
    try:
        value = load_arrays(path)
    except ValueError as error:
        if not str(error):
            raise
    else:
        assert value is None or isinstance(value, (*PLAIN, np.ndarray, np.generic, sp.sparray))


def random_value(rng: random.Random, depth: int) -> Any:
    kind = rng.randrange(8 if depth else 5)
    if kind == 0:
        return rng.choice([0, -5, 2**70, 1.5, "text", b"bytes", True, None])
    if kind == 1:
        return random_array(rng)
    if kind == 2:
        return np.float32(rng.random())
    if kind < 5:
        form = rng.choice([sp.csr_matrix, sp.csc_matrix, sp.coo_matrix, sp.csr_array])
        shape = rng.randint(1, 4), rng.randint(1, 4)
        return form(np.random.default_rng(rng.randrange(2**32)).integers(0, 3, shape))
    items = [random_value(rng, depth - 1) for _ in range(rng.randint(0, 3))]
    return {5: items, 6: tuple(items), 7: {f"key {i}": item for i, item in enumerate(items)}}[kind]


def random_array(rng: random.Random) -> np.ndarray:
    shape = tuple(rng.randint(0, 3) for _ in range(rng.randint(0, 3)))
    dtype = rng.choice(["f4", "f8", ">f8", "i8", "u1", "?", "c8", "U3", "S2"])
    array = np.random.default_rng(rng.randrange(2**32)).integers(0, 2, shape).astype(dtype)
    return np.asfortranarray(array) if rng.random() < 0.5 else array


def random_program(rng: random.Random) -> bytes:
    """Random instructions: containers in containers, the memo, sizes that are lies."""
    codes = [code.code.encode("latin1") for code in pickletools.opcodes]
    nest = [b"]", b")", b"}", b"(", b"0", b"1", b"2", b"a", b"e", b"t", b"\x85", b"\x86", b"\x94"]
    sizes = [
        b"r\xff\xff\xff\x0f",
        b"j\x00\x00\x00\x00",
        b"h\x00",
        b"q\x00",
        b"\x8b\xff\xff\xff\x7f",
    ]
    pieces = rng.choice([nest, nest + sizes, codes + nest])
    steps = [rng.choice(pieces) for _ in range(rng.choice([5, 40, 300]))]
    if rng.random() < 0.3:  # each list holds the last one many times over
        steps = [b"]\x94"] + [b"](" + b"h\x00" * 9 + b"e\x94h\x00"] * rng.randint(1, 40)
    if rng.random() < 0.3:  # tuples of tuples, which take twice as long with each
        steps = [b")", *[b"2\x86"] * rng.randint(1, 300)]
    return b"\x80\x04" + b"".join(steps) + b"."


def assert_same(got: Any, want: Any) -> None:
    if isinstance(want, dict):
        assert got.keys() == want.keys()
        for key in want:
            assert_same(got[key], want[key])
    elif isinstance(want, (list, tuple)):
        assert type(got) is type(want)
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            assert_same(a, b)
    elif sp.issparse(want):
        np.testing.assert_array_equal(got.toarray(), want.toarray())
    else:
        np.testing.assert_array_equal(got, want)
