"""Builds the CUDA kernels for the CPU: see simt/simt.h."""

import importlib.util
import sysconfig
from pathlib import Path

import pytest

from tests.csrc.building import COMPILER, CSRC, HERE, build

HEADERS = Path(sysconfig.get_path("include"))
HAS_PYBIND11 = importlib.util.find_spec("pybind11") is not None

needs_simt = pytest.mark.skipif(
    not (COMPILER and HAS_PYBIND11 and (HEADERS / "Python.h").exists()),
    reason="needs a C++ compiler, pybind11 and Python.h",
)

REALS = ("f32", "f64", "f16", "bf16")
SHARED = ["-fPIC", "-fvisibility=hidden"]
SPLIT = 8  # so that small graphs take every path
SMALL = [f"-DTENSUS_SPLIT={SPLIT}", "-DTENSUS_SHARED_BYTES=3072"]
NAME = "simt_bindings" + sysconfig.get_config_var("EXT_SUFFIX")


def build_bindings(target):
    """What does not depend on the kernels, as one object; it splits rows where they do."""
    import pybind11

    flags = [*SHARED, *SMALL, "-O0", f"-I{pybind11.get_include()}", f"-I{HEADERS}"]
    build(target, [("compiled", HERE / "simt/bindings.cpp", flags)], ["-r", "-nostdlib"])


def build_module(folder, bindings, reals=REALS, csrc=CSRC, flags=(), scheduler=()):
    """The Python module, of csrc or of a copy, with flags for the kernels and for the scheduler."""
    kernels = [*SHARED, "-xc++", "-Wno-unknown-pragmas", f"-I{HERE / 'simt'}", *SMALL, *flags]
    jobs = [
        ("simt", HERE / "simt/simt.cpp", [*SHARED, *scheduler]),
        *((real, csrc / "cuda/kernels.cu", [*kernels, f"-DTENSUS_REAL={real}"]) for real in reals),
    ]
    build(folder / NAME, jobs, ["-shared", *flags, bindings])
    return folder / NAME


def load(path):
    spec = importlib.util.spec_from_file_location("simt_bindings", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
