"""The CUDA kernels, built for the CPU once for all tests."""

from pathlib import Path

import pytest

from tests.csrc import simt_build


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at the marks
def pytest_collection_modifyitems(items):
    """All of these wait for a compiler."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)


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
