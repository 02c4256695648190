"""The kernels under ThreadSanitizer; in a file of its own, so that it is built beside the other."""

from tests.csrc.building import needs_compiler
from tests.csrc.sanitizing import check_kernels


@needs_compiler
def test_kernels_under_thread_sanitizer(tmp_path):
    check_kernels("thread", ["plain"], tmp_path)
