"""Compiles the CUDA kernels for six architectures and shows what each instantiation takes.

    python csrc/tools/check.py            warnings are errors; prints a table; fails on a missed goal
    python csrc/tools/check.py --page F   also writes the table to a page

Needs nvcc, but neither a GPU nor torch. The goals: no spilled registers where sums are float32,
and at least half of a multiprocessor's threads at work at once.
"""

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import nvcc

MARK = "<!-- The rest is written by csrc/tools/check.py. -->"
GPUS = {"RTX 2080 Ti": "sm_75", "A100": "sm_80", "RTX 3090": "sm_86", "H100": "sm_90"}
LAUNCHES = {  # threads and the most shared memory of a block: see pass.h, gather_mix.h, kernels.cu
    "finish": (512, 4 << 10),
    "gather_mix": (128, 15 << 10),
    "edge_gradient": (128, 15 << 10),
}
OTHER_LAUNCH = (128, 0)
ENTRY = re.compile(
    r"Compiling entry function '(?P<name>\w+)' for '(?P<arch>\w+)'.*?"
    r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers",
    re.DOTALL,
)


class Usage(NamedTuple):
    """What ptxas gives one kernel on one architecture."""

    registers: int
    spilled: int  # bytes, stores and loads


def compile_all(compiler: str) -> str:
    """What ptxas says about every kernel and architecture."""
    flags = nvcc.architecture_flags(nvcc.architectures(compiler, every=True))
    strict = [*nvcc.FLAGS, *flags, "--Werror", "all-warnings", "-Xptxas", "-v"]

    def compile_one(job: tuple[str, str, list[str]]) -> str:
        source, name, own = job
        path = str(nvcc.CUDA / source)
        command = [compiler, *strict, *own]
        with tempfile.TemporaryDirectory() as folder:
            target = str(Path(folder, f"{name}.o"))
            run = subprocess.run(
                [*command, "-c", path, "-o", target], capture_output=True, text=True
            )
        if run.returncode:
            sys.exit(f"{' '.join(command)}\n{run.stdout}{run.stderr}")
        return run.stderr

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return "".join(pool.map(compile_one, nvcc.sources()))


def usages(said: str) -> dict[str, dict[str, Usage]]:
    """By kernel and architecture."""
    found: dict[str, dict[str, Usage]] = defaultdict(dict)
    for entry in ENTRY.finditer(said):
        spilled = int(entry["stores"]) + int(entry["loads"])
        found[entry["name"]][entry["arch"]] = Usage(int(entry["registers"]), spilled)
    names = "\n".join(found)
    plain = subprocess.run(["c++filt"], input=names, capture_output=True, text=True, check=True)
    return {
        _short(name): found[mangled]
        for mangled, name in sorted(
            zip(found, plain.stdout.splitlines(), strict=True), key=lambda x: x[1]
        )
    }


def _short(name: str) -> str:
    name = re.sub(r"tensus::cuda::|^void |\(.*", "", name)
    return name.replace("Float16", "half", 1) if "<Float16" in name else name


def occupancies(compiler: str, launches: list[tuple[int, int, int]]) -> list[list[int]]:
    """Percent on every GPU, for each (registers, shared memory, threads)."""
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder, "occupancy"))
        headers = f"-I{nvcc.root(compiler) / 'include'}"
        source = str(Path(__file__).with_name("occupancy.cpp"))
        subprocess.run([os.environ.get("CXX") or "c++", headers, source, "-o", program], check=True)
        lines = "\n".join(" ".join(map(str, launch)) for launch in launches)
        run = subprocess.run([program], input=lines, capture_output=True, text=True, check=True)
    return [[int(percent) for percent in line.split()] for line in run.stdout.splitlines()]


def rows(compiler: str, kernels: dict[str, dict[str, Usage]]) -> list[list[str]]:
    """The table: registers by architecture, spilled bytes, shared memory, occupancy by GPU."""
    table = []
    for name, usage in kernels.items():
        threads, shared = LAUNCHES.get(name.split("<")[0], OTHER_LAUNCH)
        launches = [(usage[arch].registers, shared, threads) for arch in GPUS.values()]
        percents = [row[i] for i, row in enumerate(occupancies(compiler, launches))]
        spilled = [str(each.spilled) for each in usage.values()]
        registers = " ".join(str(each.registers) for each in usage.values())
        spills = "0" if set(spilled) == {"0"} else " ".join(spilled)
        table.append([name, registers, spills, str(shared), *(f"{p} %" for p in percents)])
    return table


def misses(table: list[list[str]]) -> list[str]:
    """The goals that are missed, kernel by kernel."""
    missed = []
    for name, _, spills, _, *percents in table:
        if spills != "0" and "<double" not in name:
            missed.append(f"{name} spills registers: {spills}")
        if any(int(percent.split()[0]) < 50 for percent in percents):
            missed.append(f"{name} keeps less than half of the threads at work: {percents}")
    return missed


def markdown(columns: list[str], table: list[list[str]]) -> str:
    """The table as text that can be read and rendered."""
    widths = [max(map(len, cells)) for cells in zip(columns, *table, strict=True)]
    lines = [columns, ["-" * width for width in widths], *table]
    return "\n".join(
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) + " |"
        for line in lines
    )


def main() -> None:
    """Compile, show, judge."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--page", type=Path, help="also put the table below the mark of this page")
    page = parser.parse_args().page
    compiler = nvcc.find()
    if compiler is None:
        sys.exit("no nvcc: set CUDA_HOME or the PATH")
    start = time.monotonic()
    kernels = usages(compile_all(compiler))
    seconds = time.monotonic() - start
    names = nvcc.architectures(compiler, every=True)
    table = rows(compiler, kernels)
    columns = ["kernel", f"registers on {' '.join(names)}", "spilled bytes", "shared bytes", *GPUS]
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    text = (
        f"{len(kernels)} kernels, {len(names)} architectures, {version.stdout.splitlines()[-1]}. "
        "Shared memory is the most a launch asks for; a GPU's column is its theoretical "
        f"occupancy.\n\n{markdown(columns, table)}\n"
    )
    print(text)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = spent.ru_utime + spent.ru_stime
    print(f"compiled in {seconds:.0f} s on {os.cpu_count()} cores, {processor:.0f} s of their time")
    if page:
        page.write_text(page.read_text().split(MARK)[0] + f"{MARK}\n\n{text}")
    if missed := misses(table):
        sys.exit("\n".join(missed))


if __name__ == "__main__":
    main()
