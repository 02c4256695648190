"""Which GPUs can run what was built, from the numbers that a driver and a build would give."""

import pytest

from tensus_tn.propagation.gpu import mend, why_not

EVERY = ["7.5", "8.0", "8.6", "9.0", "10.0", "12.0+PTX"]


@pytest.mark.parametrize(
    ("gpu", "driver", "built", "toolkit"),
    [
        ((7, 5), (12, 8), EVERY, (12, 8)),
        ((8, 9), (12, 8), EVERY, (12, 8)),  # by the code for 8.6
        ((8, 6), (12, 2), EVERY, (12, 8)),  # an older driver of the same CUDA runs code, not PTX
        ((12, 1), (12, 8), EVERY, (12, 8)),
        ((13, 0), (13, 0), EVERY, (12, 8)),  # by the PTX
        ((9, 0), (13, 1), ["9.0a"], (12, 8)),
        ((8, 0), (12, 8), ["7.5+PTX"], (12, 8)),
    ],
)
def test_kernels_that_run(gpu, driver, built, toolkit):
    assert why_not(gpu, driver, built, toolkit) is None


@pytest.mark.parametrize(
    ("gpu", "driver", "built", "toolkit", "reason"),
    [
        ((8, 0), (12, 8), ["8.6"], (12, 8), "compiled for 8.6 only"),
        ((9, 0), (12, 8), ["7.5", "8.0"], (12, 8), "compiled for 7.5, 8.0 only"),
        ((7, 0), (12, 8), EVERY, (12, 8), "only"),
        ((8, 0), (12, 4), ["7.5+PTX"], (12, 8), "knows CUDA 12.4, and can't compile PTX of 12.8"),
        ((8, 0), (11, 8), ["8.0"], (12, 8), "knows CUDA 11.8, the kernels need 12.0"),
    ],
)
def test_kernels_that_do_not(gpu, driver, built, toolkit, reason):
    assert reason in why_not(gpu, driver, built, toolkit)


def test_the_command_names_the_architecture():
    assert "TENSUS_CUDA=1 TORCH_CUDA_ARCH_LIST=8.9 pip install" in mend(8, 9)
