"""Blocks without torch, under sanitizers."""

import pytest

from tests.csrc.building import CSRC, HERE, needs_compiler
from tests.csrc.sanitizing import check_program, flags_of


@needs_compiler
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_blocks_under_sanitizers(sanitizer, tmp_path):
    flags = flags_of(sanitizer)
    jobs = [
        ("test", HERE / "test_sample.cpp", flags),
        ("sample", CSRC / "cpu/sample.cpp", flags),
    ]
    check_program(tmp_path / "test_sample", jobs, sanitizer)
