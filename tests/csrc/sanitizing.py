"""Programs of the torch-free part of csrc under a sanitizer."""

import shutil
import subprocess

from tests.csrc.building import CSRC, HERE, INSTRUCTION_SETS, build, kernel_jobs


def flags_of(sanitizer):
    return ["-g1", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]


def check_program(program, jobs, sanitizer):
    """Builds the jobs to a program, runs it, and expects it to count no failures."""
    build(program, jobs, [f"-fsanitize={sanitizer}", "-lpthread"])
    # the shadow memory of threads wants addresses that are not random
    prefix = ["setarch", "-R"] if "thread" in sanitizer and shutil.which("setarch") else []
    run = subprocess.run([*prefix, program], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-4000:]
    assert "0 failures" in run.stdout


def check_sources(test, sources, sanitizer, folder, *extra):
    """Checks the program `test` in C++ with the sources of csrc/cpu that it needs."""
    flags = [*flags_of(sanitizer), *extra]
    jobs = [(name, CSRC / f"cpu/{name}.cpp", flags) for name in sources]
    check_program(folder / test, [(test, HERE / f"{test}.cpp", flags), *jobs], sanitizer)


def check_kernels(sanitizer, wanted, folder):
    """Checks the widest of the wanted instruction sets: they have one source.

    The kernels are quicker to compile without optimisation, the program that calls them to run with it.
    """
    checked = flags_of(sanitizer)
    optimised = [*checked, "-O1"]
    isas = {isa: INSTRUCTION_SETS[isa] for isa in wanted if isa in INSTRUCTION_SETS}
    widest = list(isas)[-1]  # the other only rides along
    jobs = [
        ("test", HERE / "test_kernels.cpp", optimised),
        ("passes", CSRC / "passes.cpp", optimised),
        ("arena", CSRC / "cpu/arena.cpp", optimised),
        ("select", CSRC / "cpu/select.cpp", optimised),
        ("needed", CSRC / "cpu/needed.cpp", optimised),
        *kernel_jobs({**isas, widest: [*isas[widest], *checked]}),
    ]
    check_program(folder / "test_kernels", jobs, sanitizer)
