"""Data sets by name or path: whatever the format, the loader that knows it reads it."""

import pytest

from tensus_tn.data import load
from tests.data.hgb_files import write_hgb
from tests.data.originals import write_diffmg, write_gtn


def test_every_format_is_told_by_its_files(tmp_path):
    assert load("planted", num_nodes=20).name == "planted"
    assert load(write_gtn(tmp_path / "a")).relations
    assert load(write_diffmg(tmp_path / "b")).relations
    assert load(write_hgb(tmp_path / "c")).relations


def test_a_folder_of_other_files_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds neither"):
        load(tmp_path)
