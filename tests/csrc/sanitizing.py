"""Builds the torch-free kernels with test_kernels.cpp under a sanitizer, and runs it."""

import subprocess

from tests.csrc.building import CSRC, HERE, INSTRUCTION_SETS, build, kernel_jobs


def check_kernels(flag, wanted, folder, prefix=()):
    """Checks the widest of the wanted instruction sets: they have one source."""
    checked = ["-g1", flag, "-fno-sanitize-recover=all"]
    isas = {isa: INSTRUCTION_SETS[isa] for isa in wanted if isa in INSTRUCTION_SETS}
    widest = list(isas)[-1]  # the other only rides along
    jobs = [
        ("test", HERE / "test_kernels.cpp", checked),
        ("passes", CSRC / "passes.cpp", checked),
        ("arena", CSRC / "cpu/arena.cpp", checked),
        ("select", CSRC / "cpu/select.cpp", checked),
        ("needed", CSRC / "cpu/needed.cpp", checked),
        *kernel_jobs({**isas, widest: [*isas[widest], *checked]}),
    ]
    program = folder / "test_kernels"
    build(program, jobs, [flag, "-lpthread"])
    run = subprocess.run([*prefix, program], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-4000:]
    assert "0 failures" in run.stdout
