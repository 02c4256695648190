"""Files are whole or absent."""

import numpy as np
import pytest

from tensus_tn._files import open_arrays, write_atomically
from tensus_tn.tasks.checkpoint import load_checkpoint, save_checkpoint


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
