"""Checkpoints, and files that are none."""

import os
import re

import pytest
import torch

from tensus_tn._checkpoint import load_checkpoint, save_checkpoint


class Malicious:
    """Makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_bad_checkpoints_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        load_checkpoint(tmp_path / "none.pt")
    save_checkpoint(tmp_path / "whole.pt", {"value": torch.zeros(1000)})
    whole = (tmp_path / "whole.pt").read_bytes()
    for damaged in (b"", b"text", b"0", whole[:100], whole[: len(whole) // 2]):
        (tmp_path / "damaged.pt").write_bytes(damaged)
        with pytest.raises(ValueError, match=r"damaged\.pt is not a checkpoint, or is damaged$"):
            load_checkpoint(tmp_path / "damaged.pt")
    with pytest.raises(OSError, match=re.escape(str(tmp_path))):
        load_checkpoint(tmp_path)
    torch.save({"model": 1}, tmp_path / "other.pt")
    with pytest.raises(ValueError, match="not a checkpoint of format"):
        load_checkpoint(tmp_path / "other.pt")
    torch.save({"model": Malicious(tmp_path / "made")}, tmp_path / "object.pt")
    with pytest.raises(ValueError, match="not a checkpoint"):
        load_checkpoint(tmp_path / "object.pt")
    assert not (tmp_path / "made").exists()
