"""How the CUDA compiler is found, and for what it compiles (csrc/cuda/nvcc.py, used by setup.py)."""

import sys
from pathlib import Path

import pytest

from tensus_tn import show_config
from tensus_tn.propagation import extension

sys.path.insert(0, str(Path(__file__).parents[1] / "csrc/cuda"))
import nvcc

# What nvcc answers, as far as it is asked.
COMPILER = """#!/bin/sh
case "$1" in
  --dryrun) echo '#$ _SPACE_=' >&2; echo "#$ TOP=$(dirname "$0")/.." >&2 ;;
  --list-gpu-arch) printf 'compute_75\\ncompute_80\\n' ;;
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


def test_architectures(toolkit, monkeypatch):
    compiler = str(toolkit / "bin/nvcc")
    assert nvcc.architectures(compiler) == ["7.5", "8.0"]  # the others it does not know
    assert nvcc.architectures(compiler, "7.5+PTX") == ["7.5+PTX"]
    with pytest.raises(RuntimeError, match="compiles for none of"):
        nvcc.architectures(compiler, "12.0")
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.6; 9.0+PTX")
    assert nvcc.architectures(compiler, "7.5") == ["8.6", "9.0+PTX"]


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
