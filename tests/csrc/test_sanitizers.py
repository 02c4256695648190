"""Builds the torch-free kernels with test_kernels.cpp under the sanitizers, and runs it."""

import shutil
import subprocess

import pytest
from building import CSRC, HERE, KERNEL_ISAS, build, kernel_jobs, needs_compiler

SANITIZERS = {
    "address and undefined behaviour": ("-fsanitize=address,undefined", ["plain", "avx2"]),
    "threads": ("-fsanitize=thread", ["plain"]),
}


@needs_compiler
@pytest.mark.parametrize("sanitizer", list(SANITIZERS))
def test_kernels_under_sanitizers(sanitizer, tmp_path):
    flag, wanted = SANITIZERS[sanitizer]
    checked = ["-g1", flag, "-fno-sanitize-recover=all"]
    isas = {isa: KERNEL_ISAS[isa] for isa in wanted if isa in KERNEL_ISAS}
    widest = list(isas)[-1]  # one source: the widest is checked, the other only rides along
    jobs = [
        ("test", HERE / "test_kernels.cpp", checked),
        ("passes", CSRC / "passes.cpp", checked),
        ("arena", CSRC / "cpu/arena.cpp", checked),
        *kernel_jobs({**isas, widest: [*isas[widest], *checked]}),
    ]
    program = tmp_path / "test_kernels"
    build(program, jobs, [flag, "-lpthread"])
    command = [program]
    if sanitizer == "threads" and shutil.which("setarch"):
        command = [
            "setarch",
            "-R",
            program,
        ]  # the shadow memory wants addresses that are not random
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-4000:]
    assert "0 failures" in run.stdout
