"""Whether a GPU can run the CUDA kernels that were built, and the command that mends it."""

from __future__ import annotations

import warnings
from functools import cache

import torch

from tensus_tn.propagation import extension

_INSTALL = "pip install --no-build-isolation --no-deps --force-reinstall ."


@cache
def check_gpu(device: torch.device) -> None:
    """Say once for each GPU that there are no kernels for it; raise where those there can't run."""
    if extension._C is None:  # that was said already
        return
    major, minor = torch.cuda.get_device_capability(device)
    architectures = extension._C.cuda_architectures()
    what = f"tensus_tn: {torch.cuda.get_device_name(device)} (architecture {major}.{minor})"
    if not architectures:
        warnings.warn(
            f"{what} is NOT used by its CUDA kernels, because tensus_tn was built without nvcc: "
            f"propagation on this GPU runs on plain PyTorch, many times slower. {mend(major, minor)}",
            stacklevel=5,
        )
        return
    driver = torch._C._cuda_getDriverVersion()  # type: ignore[attr-defined]
    problem = why_not(
        (major, minor),
        (driver // 1000, driver % 1000 // 10),
        architectures.split(";"),
        _version(extension._C.cuda_toolkit()),
    )
    if problem:
        raise RuntimeError(f"{what}: {problem}. {mend(major, minor)}")


def why_not(
    gpu: tuple[int, int], driver: tuple[int, int], built: list[str], toolkit: tuple[int, int]
) -> str | None:
    """Why kernels can't run on a GPU; None if they can.

    Code for 8.0 runs on 8.0 and 8.6, not on 9.0; from `8.0+PTX` the driver compiles for any later
    one, if it is as new as the toolkit that wrote it.

    Args:
        gpu: Its architecture.
        driver: The newest CUDA that the driver knows.
        built: The architectures that kernels were compiled for, some of them `+PTX`.
        toolkit: The CUDA that they were compiled with.

    Example:
        >>> why_not((9, 0), (12, 4), ["8.0"], (12, 4))
        'the kernels were compiled for 8.0 only'
    """
    if driver[0] < toolkit[0]:
        return f"the driver knows CUDA {_text(driver)}, the kernels need {toolkit[0]}.0"
    codes = [_version(name.removesuffix("+PTX")) for name in built]
    if any(code[0] == gpu[0] and code[1] <= gpu[1] for code in codes):
        return None
    sources = [_version(name[:-4]) for name in built if name.endswith("+PTX")]
    if not any(source <= gpu for source in sources):
        return f"the kernels were compiled for {', '.join(built)} only"
    if driver < toolkit:
        return (
            f"the driver knows CUDA {_text(driver)}, and can't compile PTX of {_text(toolkit)}: "
            "update it, or build for this GPU"
        )
    return None


def mend(major: int, minor: int) -> str:
    """What to do about it."""
    return (
        "In the folder of the sources, with the CUDA toolkit (nvcc) on the PATH: "
        f"TENSUS_CUDA=1 TORCH_CUDA_ARCH_LIST={major}.{minor} {_INSTALL}"
    )


def _version(text: str) -> tuple[int, int]:
    major, minor = text.rstrip("af").split(".")
    return int(major), int(minor)


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
