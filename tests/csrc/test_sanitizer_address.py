"""The kernels under AddressSanitizer and UndefinedBehaviorSanitizer."""

from tests.csrc.building import needs_compiler
from tests.csrc.sanitizing import check_kernels


@needs_compiler
def test_kernels_under_address_and_undefined_behaviour_sanitizers(tmp_path):
    check_kernels("address,undefined", ["plain", "avx2"], tmp_path)
