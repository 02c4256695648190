"""Graphs of lists of edges without torch, under sanitizers."""

import pytest

from tests.csrc.building import CSRC, HERE, needs_compiler
from tests.csrc.sanitizing import check_program, flags_of


@needs_compiler
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_graphs_under_sanitizers(sanitizer, tmp_path):
    flags = flags_of(sanitizer)
    jobs = [
        ("test", HERE / "test_assemble.cpp", flags),
        ("assemble", CSRC / "cpu/assemble.cpp", flags),
        ("normalize", CSRC / "cpu/normalize.cpp", flags),
    ]
    check_program(tmp_path / "test_assemble", jobs, sanitizer)
