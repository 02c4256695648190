"""Builds the torch-free kernels with test_kernels.cpp under the sanitizers, and runs it."""

import os
import platform
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent.parent / "csrc"
COMPILER = os.environ.get("CXX") or shutil.which("c++")
X86 = platform.machine().lower() in ("x86_64", "amd64")
AVX2 = {"avx2": ["-mavx2", "-mfma"]} if X86 else {}

SANITIZERS = {
    "address and undefined behaviour": ("-fsanitize=address,undefined", AVX2),
    "threads": ("-fsanitize=thread", {}),
}


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
@pytest.mark.parametrize("sanitizer", list(SANITIZERS))
def test_kernels_under_sanitizers(sanitizer, tmp_path):
    flag, vectors = SANITIZERS[sanitizer]
    isas = {"plain": [], **vectors}
    common = ["-std=c++20", "-O1", "-g1", "-Wno-psabi", "-ffp-contract=fast"]
    checked = [flag, "-fno-sanitize-recover=all"]
    jobs = [
        ("test", HERE / "test_kernels.cpp", checked),
        ("passes", SOURCE / "passes.cpp", checked),
        ("arena", SOURCE / "cpu/arena.cpp", checked),
        ("dispatch", SOURCE / "cpu/dispatch.cpp", [f"-DTENSUS_HAS_{isa}" for isa in isas]),
    ]
    for (
        isa,
        target,
    ) in isas.items():  # one source: the widest is checked, the other only rides along
        mine = checked if isa == list(isas)[-1] else []
        jobs.append((isa, SOURCE / "cpu/kernels.cpp", [f"-DTENSUS_ISA={isa}", *target, *mine]))

    def compile_one(job):
        name, source, more = job
        target = tmp_path / f"{name}.o"
        subprocess.run([COMPILER, *common, *more, "-c", source, "-o", target], check=True)
        return target

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_one, jobs))
    program = tmp_path / "test_kernels"
    subprocess.run([COMPILER, flag, *objects, "-o", program, "-lpthread"], check=True)
    command = [program]
    if sanitizer == "threads" and shutil.which("setarch"):
        command = [
            "setarch",
            "-R",
            program,
        ]  # its shadow memory wants addresses that are not random
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-4000:]
    assert "0 failures" in run.stdout
