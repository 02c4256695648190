"""Walks without torch, under sanitizers."""

import pytest

from tests.csrc.building import needs_compiler
from tests.csrc.sanitizing import check_sources


@needs_compiler
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_walks_under_sanitizers(sanitizer, tmp_path):
    # The loader's choice of a function runs before a sanitizer is ready, so there is none here.
    sources = ["frontier", "walk_links", "column_exp", "arena"]
    check_sources("test_frontier", sources, sanitizer, tmp_path, "-DTENSUS_NO_CLONES")
