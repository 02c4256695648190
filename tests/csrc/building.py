"""Compiles the torch-free part of csrc for the tests, as setup.py does for the extension."""

import os
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
CSRC = HERE.parent.parent / "csrc"
sys.path.insert(0, str(CSRC / "tools"))
from instruction_sets import INSTRUCTION_SETS as INSTRUCTION_SETS  # noqa: E402

COMPILER = shlex.split(os.environ.get("CXX") or shutil.which("c++") or "")

needs_compiler = pytest.mark.skipif(not COMPILER, reason="no C++ compiler: set CXX")


def kernel_jobs(isas):
    """The jobs that make the kernels, given the flags of each instruction set, and their choice."""
    return [
        ("dispatch", CSRC / "cpu/dispatch.cpp", [f"-DTENSUS_HAS_{isa}" for isa in isas]),
        *(
            (f"kernels_{isa}", CSRC / "cpu/kernels.cpp", [f"-DTENSUS_ISA={isa}", *flags])
            for isa, flags in isas.items()
        ),
    ]


def compile_job(job, folder):
    """Compiles a job (name, source, flags) to an object in the folder."""
    name, source, flags = job
    common = ["-std=c++20", "-O0", "-Wno-psabi", "-ffp-contract=fast"]
    made = folder / f"{name}.o"
    subprocess.run([*COMPILER, *common, *flags, "-c", source, "-o", made], check=True)
    return made


def link(target, objects, link_flags):
    subprocess.run([*COMPILER, *objects, "-o", target, *link_flags], check=True)


def build(target, jobs, link_flags):
    """Compiles every job next to the target, in parallel, and links them."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(lambda job: compile_job(job, target.parent), jobs))
    link(target, objects, link_flags)
