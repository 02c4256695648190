"""The CUDA compiler: where it is, what it can compile for, and with which flags.

Imported by setup.py and by check.py, neither of which needs a CUDA build of torch.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

CUDA = Path(__file__).resolve().parents[1] / "cuda"  # where the sources are
REALS = ("f32", "f64", "f16", "bf16")  # kernels.cu is compiled for each
FLAGS = ["-std=c++20", "-O3", "-Xcompiler", "-fPIC,-fvisibility=hidden"]
EVERY_ARCHITECTURE = "7.5;8.0;8.6;9.0;10.0;12.0+PTX"
OLDEST_ARCHITECTURE = "7.5+PTX"


def sources() -> list[tuple[str, str, list[str]]]:
    """What is compiled: (source, name of the object, flags)."""
    return [("kernels.cu", f"cuda_{real}", [f"-DTENSUS_REAL={real}"]) for real in REALS]


def find() -> str | None:
    """The path of nvcc: that of CUDA_HOME or CUDA_PATH, or the one on the PATH."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    path = Path(home, "bin", "nvcc") if home else Path(shutil.which("nvcc") or "")
    return str(path) if path.is_file() else None


def root(nvcc: str) -> Path:
    """The toolkit's folder. nvcc itself must say, for what is on the PATH may be a wrapper."""
    command = [nvcc, "--dryrun", "-x", "cu", "-c", os.devnull]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    top = re.search(r"^#\$ TOP=(.*)$", said, re.MULTILINE)
    if top is None:
        raise RuntimeError(f"{nvcc} --dryrun does not name its folder:\n{said}")
    return Path(top.group(1).strip()).resolve()


def version(nvcc: str) -> str:
    """Of the toolkit, as 12.8: the driver must be as new to compile from its PTX."""
    said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    release = re.search(r"release (\d+\.\d+)", said)
    if release is None:
        raise RuntimeError(f"{nvcc} --version does not name its release:\n{said}")
    return release.group(1)


def gpus() -> list[str]:
    """The architectures of the GPUs that are there, as the driver's nvidia-smi has them: 8.6."""
    command = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return []
    found = re.findall(r"^(\d+\.\d+)\s*$", said.stdout, re.MULTILINE) if not said.returncode else []
    return sorted(set(found), key=_order)


def architectures(nvcc: str, every: bool = False) -> list[str]:
    """What to compile for: TORCH_CUDA_ARCH_LIST, else `every` one, else the GPUs that are there.

    Without a GPU it is the oldest one with PTX, from which the driver of any other compiles. So it
    is for a GPU that this nvcc does not know yet: the newest one that it knows, with PTX.
    """
    if given := os.environ.get("TORCH_CUDA_ARCH_LIST"):
        return [name for name in re.split(r"[;, ]+", given) if name]
    listed = subprocess.run([nvcc, "--list-gpu-arch"], capture_output=True, text=True, check=True)
    known = listed.stdout.split()
    present = [] if every else gpus()
    if present:
        return list(dict.fromkeys(_for_gpu(gpu, known) for gpu in present))
    names = (EVERY_ARCHITECTURE if every else OLDEST_ARCHITECTURE).split(";")
    names = [name for name in names if f"compute_{_number(name)}" in known]
    if not names:
        raise RuntimeError(f"{nvcc} compiles for none of our architectures, but for {known}")
    return names


def _for_gpu(gpu: str, known: list[str]) -> str:
    if f"compute_{_number(gpu)}" in known:
        return gpu
    numbers = [re.fullmatch(r"compute_(\d+)(\d)", name) for name in known]
    older = [f"{n[1]}.{n[2]}" for n in numbers if n and (int(n[1]), int(n[2])) < _order(gpu)]
    if not older:
        raise RuntimeError(
            f"the GPU's architecture {gpu} is older than all that nvcc knows: {known}"
        )
    return f"{max(older, key=_order)}+PTX"


def _order(name: str) -> tuple[int, int]:
    major, minor = name.split(".")
    return int(major), int(minor)


def architecture_flags(names: list[str]) -> list[str]:
    """`8.0` is code for that architecture; `8.0+PTX` is code and what later ones compile from."""
    flags = []
    for name in names:
        number = _number(name)
        flags.append(f"-gencode=arch=compute_{number},code=sm_{number}")
        if name.endswith("+PTX"):
            flags.append(f"-gencode=arch=compute_{number},code=compute_{number}")
    return flags


def _number(name: str) -> str:
    number = name.removesuffix("+PTX").replace(".", "")
    if not re.fullmatch(r"\d+[af]?", number):
        raise ValueError(f"{name!r} is no architecture; expected something like 8.6 or 9.0+PTX")
    return number
