"""The CUDA kernels, built for the CPU once for all tests."""

import pytest

from tests.csrc import simt_build


@pytest.fixture(scope="session")
def build_module(tmp_path_factory):
    """simt_build.build_module, in a folder of its own."""
    bindings = tmp_path_factory.mktemp("bindings") / "bindings.o"
    simt_build.build_bindings(bindings)

    def build_one(*arguments):
        return simt_build.build_module(tmp_path_factory.mktemp("simt"), bindings, *arguments)

    return build_one


@pytest.fixture(scope="session")
def simt(build_module):
    return simt_build.load(build_module())
