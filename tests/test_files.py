"""Files are whole or absent."""

import pytest

from tensus_tn._files import write_atomically
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
