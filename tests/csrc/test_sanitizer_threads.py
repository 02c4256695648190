"""The kernels under ThreadSanitizer; in a file of its own, so that it is built beside the other."""

import shutil

from tests.csrc.building import needs_compiler
from tests.csrc.sanitizing import check_kernels


@needs_compiler
def test_kernels_under_thread_sanitizer(tmp_path):
    # the shadow memory wants addresses that are not random
    prefix = ["setarch", "-R"] if shutil.which("setarch") else []
    check_kernels("-fsanitize=thread", ["plain"], tmp_path, prefix)
