"""Walks without torch, under sanitizers."""

import shutil
import subprocess

import pytest

from tests.csrc.building import CSRC, HERE, build, needs_compiler


@needs_compiler
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_walks_under_sanitizers(sanitizer, tmp_path):
    # The loader's choice of a function runs before a sanitizer is ready, so there is none here.
    flags = ["-g1", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", "-DTENSUS_NO_CLONES"]
    jobs = [
        ("test", HERE / "test_frontier.cpp", flags),
        ("frontier", CSRC / "cpu/frontier.cpp", flags),
        ("arena", CSRC / "cpu/arena.cpp", flags),
    ]
    program = tmp_path / "test_frontier"
    build(program, jobs, [f"-fsanitize={sanitizer}", "-lpthread"])
    prefix = ["setarch", "-R"] if sanitizer == "thread" and shutil.which("setarch") else []
    run = subprocess.run([*prefix, program], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-4000:]
    assert "0 failures" in run.stdout
