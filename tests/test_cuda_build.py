"""How the CUDA compiler is found, and for what it compiles (csrc/tools/nvcc.py, used by setup.py)."""

import sys
from pathlib import Path

import pytest

from tensus_tn import show_config
from tensus_tn.propagation import extension

sys.path.insert(0, str(Path(__file__).parents[1] / "csrc/tools"))
import nvcc

# What nvcc answers, as far as it is asked.
COMPILER = """#!/bin/sh
case "$1" in
  --dryrun) echo '#$ _SPACE_=' >&2; echo "#$ TOP=$(dirname "$0")/.." >&2 ;;
  --list-gpu-arch) printf 'compute_75\\ncompute_80\\ncompute_90\\ncompute_100\\n' ;;
esac
"""


@pytest.fixture
def toolkit(tmp_path, monkeypatch):
    """A folder with a compiler, and nothing of this machine's."""
    for name in ("CUDA_HOME", "CUDA_PATH", "TORCH_CUDA_ARCH_LIST"):
        monkeypatch.delenv(name, raising=False)
    compiler = tmp_path / "cuda/bin/nvcc"
    compiler.parent.mkdir(parents=True)
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    return tmp_path / "cuda"


def test_found_by_its_home_or_on_the_path(toolkit, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert nvcc.find() is None
    wrapper = tmp_path / "nvcc"
    wrapper.write_text(f'#!/bin/sh\nexec {toolkit}/bin/nvcc "$@"\n')
    wrapper.chmod(0o755)
    assert nvcc.find() == str(wrapper)
    assert nvcc.root(str(wrapper)) == toolkit
    monkeypatch.setenv("CUDA_HOME", str(toolkit))
    assert nvcc.find() == str(toolkit / "bin/nvcc")


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """Makes nvidia-smi answer with the given lines, and end with the given code."""

    def answer(*lines, code=0):
        program = tmp_path / "driver/nvidia-smi"
        program.parent.mkdir(exist_ok=True)
        said = "".join(f"echo '{line}'\n" for line in lines)
        program.write_text(f"#!/bin/sh\n{said}exit {code}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")

    return answer


def test_architectures_of_a_release_are_all_that_the_compiler_knows(toolkit, driver):
    driver("8.0")
    assert nvcc.architectures(str(toolkit / "bin/nvcc"), every=True) == [
        "7.5",
        "8.0",
        "9.0",
        "10.0",
    ]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["8.0"], ["8.0"]),
        (["9.0", "7.5", "9.0"], ["7.5", "9.0"]),
        (["8.9"], ["8.0+PTX"]),  # the newest older one that this compiler knows
        (["12.0", "12.1"], ["10.0+PTX"]),
        (["[N/A]"], ["7.5+PTX"]),
        ([], ["7.5+PTX"]),
    ],
)
def test_architectures_are_those_of_the_gpus_that_are_there(toolkit, driver, lines, expected):
    driver(*lines)
    assert nvcc.architectures(str(toolkit / "bin/nvcc")) == expected


def test_architectures_without_a_driver_or_where_it_fails(toolkit, driver, monkeypatch):
    compiler = str(toolkit / "bin/nvcc")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert nvcc.architectures(compiler) == ["7.5+PTX"]
    driver("8.0", code=9)  # it could not talk to the driver
    assert nvcc.architectures(compiler) == ["7.5+PTX"]


def test_architectures_by_name_or_impossible(toolkit, driver, monkeypatch):
    compiler = str(toolkit / "bin/nvcc")
    driver("6.1")
    with pytest.raises(RuntimeError, match=r"6\.1 is older than all that nvcc knows"):
        nvcc.architectures(compiler)
    monkeypatch.setattr(nvcc, "EVERY_ARCHITECTURE", "12.0+PTX")
    with pytest.raises(RuntimeError, match="compiles for none of"):
        nvcc.architectures(compiler, every=True)
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.6; 9.0+PTX")
    assert nvcc.architectures(compiler, every=True) == ["8.6", "9.0+PTX"]


def test_flags():
    assert nvcc.architecture_flags(["8.0", "9.0a", "12.0+PTX"]) == [
        "-gencode=arch=compute_80,code=sm_80",
        "-gencode=arch=compute_90a,code=sm_90a",
        "-gencode=arch=compute_120,code=sm_120",
        "-gencode=arch=compute_120,code=compute_120",
    ]
    with pytest.raises(ValueError, match="'Ampere' is no architecture"):
        nvcc.architecture_flags(["Ampere"])


def test_config_names_the_architectures(capsys):
    built = "" if extension._C is None else extension._C.cuda_architectures()
    assert show_config()["CUDA kernels built"] == (built.split(";") if built else [])
    assert (built.replace(";", ", ") or "none") in capsys.readouterr().out
