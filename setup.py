"""Builds the optional extension ``tensus_tn._C``: torch's stable ABI, CPython's abi3.

The kernels are compiled once for each instruction set, and the machine's own is chosen at run time.
The extension makes tensus_tn fast but is not needed to run it, so a missing compiler, a missing
torch or a failed compilation is reported and the install goes on. ``TENSUS_EXTENSION=1`` makes a
failure fatal, ``TENSUS_EXTENSION=0`` skips the extension; ``CXX`` is the compiler,
``TENSUS_CXXFLAGS`` are flags after ours, and ``TENSUS_WERROR=1`` makes its warnings errors.

Where nvcc is found, the CUDA kernels are compiled and linked in; no CUDA build of torch is needed.
``TENSUS_CUDA=0`` leaves them out, ``TENSUS_CUDA=1`` makes a failure fatal. They are compiled for the
GPUs that are there; ``TORCH_CUDA_ARCH_LIST`` names others, ``TENSUS_RELEASE=1`` means all of them.

Everything is one ninja graph: a list of ``(rule, source, object, flags)`` and one link.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "csrc/tools"))
import nvcc  # noqa: E402
from instruction_sets import INSTRUCTION_SETS  # noqa: E402

TORCH_TARGET = "0x020b000000000000"  # the oldest torch whose stable ABI we use: 2.11
PYTHON_TARGET = "0x030A0000"  # the oldest CPython whose limited API we use: 3.10
MODE = os.environ.get("TENSUS_EXTENSION", "")
CUDA_MODE = os.environ.get("TENSUS_CUDA", "")
RELEASE = os.environ.get("TENSUS_RELEASE", "") == "1"
STRICT = os.environ.get("TENSUS_WERROR", "") == "1"

WARNINGS = ["-Wall", "-Wextra", "-Wno-psabi", *(["-Werror"] if STRICT else [])]

LIBRARY, OPS_CUDA = "csrc/library.cpp", "csrc/ops_cuda.cpp"
WITH_TORCH = [
    "csrc/ops_assemble.cpp",
    "csrc/ops_cpu.cpp",
    "csrc/ops_pass.cpp",
    "csrc/ops_rules.cpp",
    "csrc/ops_sample.cpp",
    "csrc/selection_cache.cpp",
    "csrc/team.cpp",
]
WITHOUT_TORCH = [
    "csrc/passes.cpp",
    "csrc/cpu/arena.cpp",
    "csrc/cpu/assemble.cpp",
    "csrc/cpu/column_exp.cpp",
    "csrc/cpu/frontier.cpp",
    "csrc/cpu/walk_links.cpp",
    "csrc/cpu/needed.cpp",
    "csrc/cpu/normalize.cpp",
    "csrc/cpu/sample.cpp",
    "csrc/cpu/select.cpp",
]
KERNELS, DISPATCH = "csrc/cpu/kernels.cpp", "csrc/cpu/dispatch.cpp"


class Cuda(NamedTuple):
    """The CUDA compiler and what it is to compile for."""

    nvcc: str
    architectures: list[str]

    @classmethod
    def found(cls) -> Cuda | None:
        path = None if CUDA_MODE == "0" else nvcc.find()
        if path is None:
            if CUDA_MODE == "1":
                raise RuntimeError("TENSUS_CUDA=1, but there is no nvcc: set CUDA_HOME or the PATH")
            return None
        return cls(path, nvcc.architectures(path, every=RELEASE))

    def flags(self) -> list[str]:
        host = os.environ.get("CXX")
        return [
            *nvcc.FLAGS,
            *nvcc.architecture_flags(self.architectures),
            *(["--Werror", "all-warnings"] if STRICT else []),
            *(["-ccbin", host] if host else []),
        ]

    def links(self) -> list[str]:
        root = nvcc.root(self.nvcc)
        libraries = ["-lcudart_static", "-lrt", "-ldl", "-lpthread"]
        # libtorch loads libtorch_cuda where there is one; ops_cuda.cpp asks that for the stream.
        torch = ["-Wl,--no-as-needed", "-ltorch", "-Wl,--as-needed"]
        return [f"-L{root}/lib64", f"-L{root}/lib", *libraries, *torch]


class Job(NamedTuple):
    """An object and how it is compiled: flags beyond those of the rule."""

    rule: str
    source: str
    target: Path
    flags: list[str]


def compiled(source: str, build: Path, flags: list[str]) -> Job:
    return Job("compile", source, build / f"{Path(source).stem}.o", flags)


def objects(build: Path, cuda: Cuda | None) -> list[Job]:
    from torch.utils.cpp_extension import include_paths

    headers = [f"-isystem{path}" for path in [*include_paths(), sysconfig.get_path("include")]]
    torch = [
        *headers,
        f"-DTORCH_TARGET_VERSION={TORCH_TARGET}",
        f"-DPy_LIMITED_API={PYTHON_TARGET}",
    ]
    architectures = ";".join(cuda.architectures) if cuda else ""
    names = [
        f'-DTENSUS_CUDA_ARCHITECTURES="{architectures}"',
        f'-DTENSUS_CUDA_TOOLKIT="{nvcc.version(cuda.nvcc) if cuda else ""}"',
    ]
    jobs = [
        compiled(LIBRARY, build, [*torch, *names]),
        *(compiled(source, build, torch) for source in WITH_TORCH),
        *(compiled(source, build, []) for source in WITHOUT_TORCH),
        compiled(DISPATCH, build, [f"-DTENSUS_HAS_{isa}" for isa in INSTRUCTION_SETS]),
    ]
    for isa, flags in INSTRUCTION_SETS.items():
        target = build / f"kernels_{isa}.o"
        jobs.append(Job("compile", KERNELS, target, [f"-DTENSUS_ISA={isa}", *flags]))
    if cuda:
        jobs.append(compiled(OPS_CUDA, build, torch))
        for source, name, flags in nvcc.sources():
            jobs.append(Job("nvcc", f"csrc/cuda/{source}", build / f"{name}.o", flags))
    return jobs


def ninja_graph(build: Path, library: Path, cuda: Cuda | None) -> str:
    """The text of build.ninja: compile every object (with its header dependencies), link them."""
    from torch.utils.cpp_extension import library_paths

    def escape(path: object) -> str:
        return str(path).replace("$", "$$").replace(" ", "$ ").replace(":", "$:")

    compiler = os.environ.get("CXX") or "c++"
    ours = ["-std=c++20", "-O3", "-fPIC", "-fvisibility=hidden", *WARNINGS, "-ffp-contract=fast"]
    common = shlex.join([*ours, *shlex.split(os.environ.get("TENSUS_CXXFLAGS", ""))])
    links = [*(f"-L{path}" for path in library_paths()), "-ltorch_cpu"]
    if sys.platform == "darwin":
        links += ["-undefined", "dynamic_lookup"]
    if cuda:
        links += cuda.links()
    lines = [
        f"cxx = {compiler}",
        "rule compile",
        f"  command = $cxx {common} $flags -MMD -MF $out.d -c $in -o $out",
        "  depfile = $out.d",
        "  deps = gcc",
        "rule link",
        f"  command = $cxx -shared $in {shlex.join(links)} -o $out",
    ]
    if cuda:
        device = shlex.join([cuda.nvcc, *cuda.flags()])
        lines += [
            "rule nvcc",
            f"  command = {device} $flags -MMD -MF $out.d -c $in -o $out",
            "  depfile = $out.d",
            "  deps = gcc",
        ]
    jobs = objects(build, cuda)
    for job in jobs:
        lines += [
            f"build {escape(job.target)}: {job.rule} {escape(ROOT / job.source)}",
            f"  flags = {shlex.join(job.flags)}",
        ]
    inputs = " ".join(escape(job.target) for job in jobs)
    lines.append(f"build {escape(library)}: link {inputs}")
    return "\n".join(lines) + "\n"


class BuildOptional(build_ext):
    """Runs the ninja graph; goes on without CUDA, or without the extension, where that fails."""

    def build_extension(self, ext: Extension) -> None:
        library = Path(self.get_ext_fullpath(ext.name)).resolve()
        library.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.build_with_cuda_if_possible(library)
        except Exception as error:
            if MODE == "1" or CUDA_MODE == "1":
                raise
            library.unlink(missing_ok=True)
            report(
                f"the compiled extension was NOT built: {error!r}",
                "The install goes on: everything works through plain PyTorch, only slower.",
                "Needed: a C++20 compiler (CXX), ninja and torch.",
                "TENSUS_EXTENSION=1 makes this an error.",
            )

    def build_with_cuda_if_possible(self, library: Path) -> None:
        try:
            cuda = Cuda.found()
            run_ninja(library, cuda)
        except Exception as error:
            if CUDA_MODE == "1" or nvcc.find() is None:
                raise
            report(
                f"the build with CUDA failed: {error!r}",
                "The install goes on without CUDA kernels.",
                "TENSUS_CUDA=1 makes this an error, TENSUS_CUDA=0 does not try.",
            )
            run_ninja(library, None)


def run_ninja(library: Path, cuda: Cuda | None) -> None:
    build = ROOT / "build" / f"ninja-{sysconfig.get_platform()}"  # kept: a rebuild is incremental
    build.mkdir(parents=True, exist_ok=True)
    (build / "build.ninja").write_text(ninja_graph(build, library, cuda))
    ninja = shutil.which("ninja")
    command = [ninja] if ninja else [sys.executable, "-m", "ninja"]
    subprocess.run([*command, "-C", build], check=True)


def report(*lines: str) -> None:
    first, *rest = lines
    text = [f"\n*** tensus_tn: {first}", *(f"*** {line}" for line in rest), ""]
    print("\n".join(text), file=sys.stderr)


EXTENSION = Extension(
    "tensus_tn._C",
    sources=[LIBRARY, *WITH_TORCH, *WITHOUT_TORCH, KERNELS, DISPATCH],
    depends=[
        OPS_CUDA,
        *(
            str(path.relative_to(ROOT))
            for kind in ("**/*.h", "cuda/*.cu", "tools/*.*")
            for path in sorted((ROOT / "csrc").glob(kind))
        ),
    ],
    py_limited_api=True,
    optional=True,
)

setup(
    ext_modules=[] if MODE == "0" else [EXTENSION],
    cmdclass={"build_ext": BuildOptional},
    options={} if MODE == "0" else {"bdist_wheel": {"py_limited_api": "cp310"}},
)
