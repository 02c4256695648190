"""Walks without torch, under sanitizers."""

import pytest

from tests.csrc.building import CSRC, HERE, needs_compiler
from tests.csrc.sanitizing import check_program, flags_of


@needs_compiler
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_walks_under_sanitizers(sanitizer, tmp_path):
    # The loader's choice of a function runs before a sanitizer is ready, so there is none here.
    flags = [*flags_of(sanitizer), "-DTENSUS_NO_CLONES"]
    jobs = [
        ("test", HERE / "test_frontier.cpp", flags),
        ("frontier", CSRC / "cpu/frontier.cpp", flags),
        ("arena", CSRC / "cpu/arena.cpp", flags),
    ]
    check_program(tmp_path / "test_frontier", jobs, sanitizer)
