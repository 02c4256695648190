"""One thread by default: the tensors of the tests are tiny, and results do not depend on it."""

import pytest
import torch
from hypothesis import settings

settings.register_profile("tests", deadline=None)  # on a busy machine any example may take long
settings.load_profile("tests")


def pytest_configure(config):
    config.addinivalue_line("markers", "cuda: needs a GPU and the CUDA kernels")
    config.addinivalue_line("markers", "slow: takes seconds; left out by `make test-fast`")


@pytest.fixture
def tensorly():
    """TensorLy on torch; its backend is global, so it is put back afterwards."""
    tensorly = pytest.importorskip("tensorly")
    with tensorly.backend_context("pytorch"):
        yield tensorly


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)
