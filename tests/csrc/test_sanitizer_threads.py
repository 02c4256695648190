"""The kernels under ThreadSanitizer and UndefinedBehaviorSanitizer.

In a file of its own, so that it is built beside the other. Undefined behaviour is checked here,
where it costs less to compile than together with addresses.
"""

from tests.csrc.building import needs_compiler
from tests.csrc.sanitizing import check_kernels


@needs_compiler
def test_kernels_under_thread_and_undefined_behaviour_sanitizers(tmp_path):
    check_kernels("thread,undefined", ["plain"], tmp_path)
