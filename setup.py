"""Builds the optional extension ``tensus_tn._C``: torch's stable ABI, CPython's abi3.

The kernels are compiled once for each instruction set, and the machine's own is chosen at run time.
The extension makes tensus_tn fast but is not needed to run it, so a missing compiler, a missing
torch or a failed compilation is reported and the install goes on. ``TENSUS_EXTENSION=1`` makes a
failure fatal (CI wants that), ``TENSUS_EXTENSION=0`` skips the extension; ``CXX`` is the compiler.

Everything is one ninja graph: a list of ``(source, object, flags)`` and one link. A device compiler
is one more rule and a few more objects.
"""

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
TORCH_TARGET = "0x020d000000000000"  # the oldest torch whose stable ABI we use: 2.13
PYTHON_TARGET = "0x030A0000"  # the oldest CPython whose limited API we use: 3.10
MODE = os.environ.get("TENSUS_EXTENSION", "")

OPS, KERNEL, DISPATCH = "csrc/ops.cpp", "csrc/cpu/kernels.cpp", "csrc/cpu/dispatch.cpp"
COMMON = ["csrc/passes.cpp", "csrc/cpu/arena.cpp"]

# The kernel's one source is compiled for each of these.
KERNEL_ISAS = {"plain": []}
if platform.machine().lower() in ("x86_64", "amd64"):
    KERNEL_ISAS["avx2"] = ["-mavx2", "-mfma"]
    KERNEL_ISAS["avx512"] = ["-mavx512f", "-mavx512vl", "-mavx512bw", "-mavx512dq", "-mfma"]


def objects(build: Path) -> list[tuple[str, Path, list[str]]]:
    """What is compiled: (source, object, flags beyond the common ones)."""
    from torch.utils.cpp_extension import include_paths

    headers = [f"-isystem{path}" for path in [*include_paths(), sysconfig.get_path("include")]]
    targets = [f"-DTORCH_TARGET_VERSION={TORCH_TARGET}", f"-DPy_LIMITED_API={PYTHON_TARGET}"]
    jobs = [
        (OPS, build / "ops.o", [*headers, *targets]),
        *((source, build / f"{Path(source).stem}.o", []) for source in COMMON),
        (DISPATCH, build / "dispatch.o", [f"-DTENSUS_HAS_{isa}" for isa in KERNEL_ISAS]),
    ]
    for isa, flags in KERNEL_ISAS.items():
        jobs.append((KERNEL, build / f"kernels_{isa}.o", [f"-DTENSUS_ISA={isa}", *flags]))
    return jobs


def ninja_graph(build: Path, library: Path) -> str:
    """The text of build.ninja: compile every object (with its header dependencies), link them."""
    from torch.utils.cpp_extension import library_paths

    def escape(path: object) -> str:
        return str(path).replace("$", "$$").replace(" ", "$ ").replace(":", "$:")

    compiler = os.environ.get("CXX") or "c++"
    common = "-std=c++20 -O3 -fPIC -fvisibility=hidden -Wall -Wextra -Wno-psabi -ffp-contract=fast"
    links = [*(f"-L{path}" for path in library_paths()), "-ltorch_cpu", "-ltorch"]
    if sys.platform == "darwin":
        links += ["-undefined", "dynamic_lookup"]
    lines = [
        f"cxx = {compiler}",
        "rule compile",
        f"  command = $cxx {common} $flags -MMD -MF $out.d -c $in -o $out",
        "  depfile = $out.d",
        "  deps = gcc",
        "rule link",
        f"  command = $cxx -shared $in {shlex.join(links)} -o $out",
    ]
    jobs = objects(build)
    for source, target, flags in jobs:
        lines += [
            f"build {escape(target)}: compile {escape(ROOT / source)}",
            f"  flags = {shlex.join(flags)}",
        ]
    lines.append(
        f"build {escape(library)}: link {' '.join(escape(target) for _, target, _ in jobs)}"
    )
    return "\n".join(lines) + "\n"


class BuildOptional(build_ext):
    """Runs the ninja graph, and lets the install go on without the extension where that fails."""

    def build_extension(self, ext: Extension) -> None:
        library = Path(self.get_ext_fullpath(ext.name)).resolve()
        build = (
            ROOT / "build" / f"ninja-{sysconfig.get_platform()}"
        )  # kept, so that a rebuild is incremental
        build.mkdir(parents=True, exist_ok=True)
        library.parent.mkdir(parents=True, exist_ok=True)
        try:
            (build / "build.ninja").write_text(ninja_graph(build, library))
            ninja = shutil.which("ninja")
            subprocess.run(
                [*([ninja] if ninja else [sys.executable, "-m", "ninja"]), "-C", build], check=True
            )
        except Exception as error:
            if MODE == "1":
                raise
            library.unlink(missing_ok=True)
            print(
                f"\n*** tensus_tn: the compiled extension was NOT built: {error!r}\n"
                "*** The install goes on: everything works through plain PyTorch, only slower.\n"
                "*** Needed: a C++20 compiler (CXX), ninja and torch.\n"
                "*** TENSUS_EXTENSION=1 makes this an error.\n",
                file=sys.stderr,
            )


EXTENSION = Extension(
    "tensus_tn._C",
    sources=[OPS, KERNEL, DISPATCH, *COMMON],
    depends=[str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("csrc/**/*.h"))],
    py_limited_api=True,
    optional=True,
)

setup(
    ext_modules=[] if MODE == "0" else [EXTENSION],
    cmdclass={"build_ext": BuildOptional},
    options={} if MODE == "0" else {"bdist_wheel": {"py_limited_api": "cp310"}},
)
