"""Files are whole or absent."""

import numpy as np
import pytest

from tensus_tn._checkpoint import load_checkpoint, save_checkpoint
from tensus_tn._files import map_arrays, open_arrays, write_arrays, write_atomically


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    save_checkpoint(tmp_path / "file", {"value": 1})

    def broken(file):
        file.write(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(tmp_path / "file", broken)
    assert load_checkpoint(tmp_path / "file")["value"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_damaged_and_exotic_archives_are_refused_by_name(tmp_path):
    path = tmp_path / "file.npz"
    np.savez(path, a=np.arange(1000), b=np.ones(3))
    whole = path.read_bytes()
    with open_arrays(path, "what it should be") as arrays:
        assert arrays["a"].sum() == 499500
    with (
        pytest.raises(ValueError, match=r"file\.npz is not what it should be: c is not a file"),
        open_arrays(path, "what it should be") as arrays,
    ):
        arrays["c"]
    header = whole.index(b"(1000,)")
    local, central = whole.index(b"PK\x03\x04"), whole.index(b"PK\x01\x02")
    for damaged in (
        b"",
        whole[:500],
        whole[:header] + b"(9000,)" + whole[header + 7 :],  # more than there is
        whole[:300] + b"\xff" + whole[301:],  # another checksum
        patched(whole, {local + 8: 99, central + 10: 99}),  # an unknown compression
        patched(whole, {local + 6: 1, central + 8: 1}),  # encrypted
    ):
        path.write_bytes(damaged)
        with (
            pytest.raises(ValueError, match=r"file\.npz is not what it should be: "),
            open_arrays(path, "what it should be") as arrays,
        ):
            arrays["a"]


def patched(content, bytes_at):
    content = bytearray(content)
    for place, value in bytes_at.items():
        content[place] = value
    return bytes(content)


ARRAYS = {
    "a": np.arange(1000),
    "b": np.ones((2, 3), "<f4"),
    "c": np.array(["x", "yz"]),
    "d": np.array(5),
}


def test_arrays_are_mapped_as_they_were_written(tmp_path):
    path = tmp_path / "file.npz"
    write_arrays(path, ARRAYS)
    with np.load(path) as read:
        assert list(read) == list(ARRAYS)
        mapped = map_arrays(path, "what it should be", verify=True)
        for name, array in ARRAYS.items():
            for found in (read[name], mapped[name]):
                assert found.dtype == array.dtype
                np.testing.assert_array_equal(found, array)
            assert mapped[name].ctypes.data % 64 == 0


def test_damaged_files_are_not_mapped(tmp_path):
    path = tmp_path / "file.npz"
    write_arrays(path, ARRAYS)
    whole = path.read_bytes()
    header = whole.index(b"(1000,)")
    central = whole.index(b"PK\x01\x02")
    for damaged in (
        b"",
        whole[:500],
        whole[:header] + b"(9000,)" + whole[header + 7 :],  # more than there is
        whole[:header] + b"(-100,)" + whole[header + 7 :],
        patched(whole, {central + 10: 8}),  # compressed, it says
        patched(whole, {central + 44: 255}),  # elsewhere, it says
        whole[:7000] + whole[7001:],  # moved by one
    ):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"file\.npz is not what it should be: "):
            map_arrays(path, "what it should be")
    path.write_bytes(patched(whole, {header + 200: 7}))  # another checksum
    assert map_arrays(path, "what it should be")["a"].sum() != 499500
    with pytest.raises(ValueError, match=r"is not what it should be: .*damaged"):
        map_arrays(path, "what it should be", verify=True)


@pytest.mark.parametrize("broken", [b"{'descr': '<f8', (", b"{'descr': '<f8' 'x", b"  x\n y"])
def test_a_header_that_is_no_dict_is_refused(tmp_path, broken):
    path = tmp_path / "arrays.npz"
    write_arrays(path, {"a": np.ones(3)})
    content = path.read_bytes()
    start = content.index(b"{'descr'")
    end = content.index(b"\n", start)
    path.write_bytes(content[:start] + broken.ljust(end - start) + content[end:])
    with pytest.raises(ValueError, match=r"is not a graph: a\.npy is no array"):
        map_arrays(path, "a graph")
