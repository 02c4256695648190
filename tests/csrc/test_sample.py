"""Blocks without torch, under sanitizers."""

import shutil
import subprocess

import pytest

from tests.csrc.building import CSRC, HERE, build, needs_compiler


@needs_compiler
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_blocks_under_sanitizers(sanitizer, tmp_path):
    flags = ["-g1", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    jobs = [
        ("test", HERE / "test_sample.cpp", flags),
        ("sample", CSRC / "cpu/sample.cpp", flags),
    ]
    program = tmp_path / "test_sample"
    build(program, jobs, [f"-fsanitize={sanitizer}", "-lpthread"])
    prefix = ["setarch", "-R"] if sanitizer == "thread" and shutil.which("setarch") else []
    run = subprocess.run([*prefix, program], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-4000:]
    assert "0 failures" in run.stdout
