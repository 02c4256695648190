"""Graphs of lists of edges without torch, under sanitizers."""

import pytest

from tests.csrc.building import needs_compiler
from tests.csrc.sanitizing import check_sources


@needs_compiler
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_graphs_under_sanitizers(sanitizer, tmp_path):
    check_sources("test_assemble", ["assemble", "normalize"], sanitizer, tmp_path)
