"""The kernels under AddressSanitizer."""

from tests.csrc.building import needs_compiler
from tests.csrc.sanitizing import check_kernels


@needs_compiler
def test_kernels_under_address_sanitizer(tmp_path):
    check_kernels("address", ["plain", "avx2"], tmp_path)
