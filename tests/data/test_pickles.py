import os
import pickle

import numpy as np
import pytest
import scipy.sparse as sp

from tensus_tn.data.pickles import load_arrays


class Malicious:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def write(tmp_path, value, protocol=4):
    path = tmp_path / "file.pkl"
    path.write_bytes(value if isinstance(value, bytes) else pickle.dumps(value, protocol))
    return path


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("make", [sp.csr_matrix, sp.csc_matrix, sp.coo_matrix, sp.csr_array])
def test_arrays_and_matrices_come_back(tmp_path, protocol, make):
    dense = np.array([[0, 2.5], [1, 0], [0, 0]])
    value = {"m": [make(dense)], "a": np.arange(6).reshape(2, 3)[:, ::2], "s": np.float32(2)}
    read = load_arrays(write(tmp_path, value, protocol))
    assert (read["m"][0].toarray() == dense).all()
    assert (read["a"] == value["a"]).all()
    assert read["s"] == 2


def test_matrices_of_old_scipy_come_back(tmp_path):
    """Their class stood in scipy.sparse.csr, and their strings were those of Python 2."""
    text = pickle.dumps(sp.csr_matrix(np.eye(2)), 0)
    old = text.replace(b"cscipy.sparse._csr", b"cscipy.sparse.csr")
    assert old != text
    assert (load_arrays(write(tmp_path, old)).toarray() == np.eye(2)).all()


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [np.eye(2), {"a": x}]])
def test_a_pickle_that_calls_something_is_refused_before_the_call(tmp_path, protocol, wrap):
    made = tmp_path / "made"
    for function, *arguments in (
        (os.mkdir, str(made)),
        (eval, f"__import__('os').mkdir({str(made)!r})"),
        (getattr, "text", "format"),
        (np.load, str(made)),
        (np.lib.npyio.NpzFile, str(made)),
    ):
        path = write(tmp_path, wrap(Malicious(function, *arguments)), protocol)
        with pytest.raises(ValueError, match="asks for"):
            load_arrays(path)
        assert not made.exists()


def test_objects_can_not_be_made_through_the_old_reconstructor(tmp_path):
    text = b"ccopy_reg\n_reconstructor\n(cnumpy\nndarray\nc__builtin__\nobject\nNtR."
    with pytest.raises(ValueError, match="only arrays"):
        load_arrays(write(tmp_path, text))


def test_bytes_are_not_taken_for_objects(tmp_path):
    """Pointers out of the file would end the process when they are followed, or worse."""
    fields = (3, "|", None, ("a",), {"a": (np.dtype("O"), 0)}, 8, 1, 0)
    shown = type("Shown", (), {"__reduce__": lambda self: (np.dtype, ("V8",), fields)})()
    for value in (
        Malicious(np.ndarray, (1,), np.dtype("O"), b"A" * 8),
        Malicious(np.zeros(0).__reduce__()[0], np.ndarray, (1,), b"O"),
        Malicious(np.float64(0).__reduce__()[0], shown, b"A" * 8),
        np.array([None]),
    ):
        with pytest.raises(ValueError, match=r"file\.pkl"):
            load_arrays(write(tmp_path, value))


def test_text_orders_and_empty_arrays_come_back(tmp_path):
    for array in (
        np.array(["ab", "c"]),
        np.arange(6, dtype=">i4").reshape(2, 3),
        np.asfortranarray(np.eye(3)[:2]),
        np.zeros((0, 3)),
        np.array(2.5),
    ):
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            read = load_arrays(write(tmp_path, array, protocol))
            assert (read.dtype, read.shape) == (array.dtype, array.shape)
            assert (read == array).all()
            assert read.flags.writeable


def test_indices_out_of_bounds_are_refused(tmp_path):
    for make, attribute in ((sp.csr_matrix, "indices"), (sp.csr_matrix, "indptr")):
        matrix = make(np.eye(3))
        getattr(matrix, attribute)[1] = 10**6
        with pytest.raises(ValueError, match=r"file\.pkl"):
            load_arrays(write(tmp_path, matrix))
    coo = sp.coo_matrix(np.eye(3))
    coo.coords[0][0] = -7
    with pytest.raises(ValueError, match=r"file\.pkl"):
        load_arrays(write(tmp_path, coo))


@pytest.mark.parametrize("damaged", [b"", b"not a pickle", pickle.dumps(np.eye(9))[:-20]])
def test_damaged_files_are_refused(tmp_path, damaged):
    with pytest.raises(ValueError, match=r"file\.pkl"):
        load_arrays(write(tmp_path, damaged))


NESTED = b"\x80\x04)" + b"2\x86" * 300  # ((..), (..)) of the same tuple twice, 300 deep
LIST_OF_LISTS = b"\x80\x04]" + b"".join(b"q%c](%se" % (k, b"h%c" % k * 9) for k in range(60))


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (NESTED + b".", "nested more than 64 deep"),
        (LIST_OF_LISTS + b".", "would take .* bytes, above the limit"),
        (b"\x80\x04}" + NESTED[2:] + b"K\x01s.", "a key of a dict is a tuple"),
        (b"\x80\x04}(" + NESTED[2:] + b"K\x01u.", "a key of a dict is a tuple"),
        (b"\x80\x04(" + NESTED[2:] + b"K\x01d.", "a key of a dict is a tuple"),
        (b"\x80\x04(" + NESTED[2:] + b"\x91.", "it holds sets"),
        (b"\x80\x04\x8f.", "it holds sets"),
        (b"\x80\x04]q\x00h\x00a.", "nested more than 64 deep"),  # a list that holds itself
        (b"\x80\x04B\xff\xff\xff\xff.", "is not a pickle"),  # four gigabytes, it says
        (b"\x80\x04]r\xff\xff\xff\xff", "is not a pickle"),  # memo cell 2^32 - 1
        (b"\x80\x05\x96" + b"\xff" * 7 + b"\x0f.", "is not a pickle"),
        (b"\x80\x04cnumpy\nndarray\nN}\x8c\x01aK\x01s\x86b.", "it sets attributes of type"),
    ],
)
def test_time_bombs_are_refused_at_once(tmp_path, program, message):
    with pytest.raises(ValueError, match=message):
        load_arrays(write(tmp_path, program))


def test_sizes_are_checked_before_anything_is_made(tmp_path):
    buffer = np.zeros(2**20, np.uint8)
    many = [np.ndarray.__new__(np.ndarray, 2**20, np.uint8, buffer) for _ in range(3)]
    assert len(load_arrays(write(tmp_path, many))) == 3
    with pytest.raises(ValueError, match=r"3,145,728 bytes, above the limit of 3,000,000"):
        load_arrays(write(tmp_path, many), max_bytes=3_000_000)
    wide = sp.coo_matrix(np.eye(2))
    wide._shape = (2**40, 2**40)
    with pytest.raises(ValueError, match="would take 17,592,186,044"):
        load_arrays(write(tmp_path, wide))


def test_what_is_shared_is_made_once(tmp_path):
    row = np.arange(3)
    first, second = load_arrays(write(tmp_path, [row, row]))
    assert first is second


@pytest.mark.parametrize(
    ("program", "name"),
    [
        (b"cnumpy\ndtype\n(S'f4'\ntR.", "Dtype"),
        (b"(lcnumpy\ndtype\n(S'f4'\ntRa.", "Dtype"),
        (b"cnumpy\nndarray\n.", "Array"),
        (b"cnumpy\n_reconstruct\n.", "function"),
        (b"cbuiltins\nobject\n.", "object"),
    ],
)
def test_parts_of_arrays_alone_are_refused(tmp_path, program, name):
    path = tmp_path / "part.pkl"
    path.write_bytes(program)
    with pytest.raises(ValueError, match=f"it holds a {name}, but only arrays are loaded"):
        load_arrays(path)
