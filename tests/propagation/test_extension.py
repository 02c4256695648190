"""show_config, and an import that fails for a stale extension only, but says what is missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tensus_tn.propagation import extension
from tensus_tn.propagation.extension import show_config
from tests.propagation.problems import (
    GRAPHS,
    TOLERANCE,
    check_edge,
    native,
    random_graph,
    sum_dtype,
)

ROOT = Path(__file__).resolve().parents[2]
USE = """
import warnings
import tensus_tn, torch
from tensus_tn.propagation.extension import show_config
from tensus_tn.propagation.functional import propagate
from tensus_tn.propagation.relation_graph import RelationGraph
graph = RelationGraph.from_edge_index({"A": torch.tensor([[0], [1]])}, 2)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        out = propagate(graph, torch.ones(2, 1, 1), torch.ones(1, 1, 1))
assert out.flatten().tolist() == [0.0, 1.0]
print(show_config()["backend"], [str(w.message) for w in caught])
"""


def run(script, **environment):
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    result = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()[-1]


def test_show_config(capsys):
    shown = show_config()
    printed = capsys.readouterr().out
    assert shown["torch"] == torch.__version__
    assert shown["threads"] == torch.get_num_threads()
    assert shown["backend"] == ("reference" if extension._C is None else "native")
    for name in shown:
        assert name in printed
    if extension._C is not None:
        assert shown["instruction set"] in shown["instruction sets built"]


@pytest.mark.slow
def test_reference_on_request_is_silent():
    assert run(USE, TENSUS_BACKEND="reference") == "reference []"


@pytest.mark.slow
def test_missing_extension_is_said_once():
    hide = "import sys; sys.modules['tensus_tn._C'] = None\n"
    last = run(hide + USE, TENSUS_BACKEND="")
    assert last.startswith("reference ['tensus_tn: the compiled extension is not available")
    assert last.count("tensus_tn:") == 1
    assert last.endswith("propagation runs on plain PyTorch']")


@pytest.mark.slow
def test_unknown_backend_is_said():
    last = run(USE, TENSUS_BACKEND="fast")
    assert "TENSUS_BACKEND is 'fast', expected 'reference' or nothing" in last


STALE = """
import sys, types, torch
library = torch.library.Library("tensus_tn", "DEF")
library.define("propagate(Tensor h, Tensor w) -> Tensor[]")
sys.modules["tensus_tn._C"] = types.SimpleNamespace(__file__="_C.abi3.so")
try:
    from tensus_tn import propagate
except ImportError as error:
    print(error)
"""


@pytest.mark.slow
def test_an_extension_of_other_sources_is_refused():
    last = run(STALE, TENSUS_BACKEND="")
    assert last.startswith("the compiled extension _C.abi3.so was built from other sources")
    assert "found tensus_tn::propagate(Tensor h, Tensor w) -> Tensor[]" in last
    assert "TENSUS_BACKEND=reference" in last


@native
@pytest.mark.parametrize(
    "isa", [name for name, runs in extension._C.isas().items() if runs] if extension._C else []
)
def test_every_instruction_set(isa):
    best = extension._C.isa()
    try:
        extension._C.use_isa(isa)
        assert extension._C.isa() == isa
        for dtype in TOLERANCE:
            graph = random_graph(40, 200, dtype=sum_dtype(dtype), **GRAPHS["as in DiffMG"])
            for p, q, features in [(2, 2, 64), (4, 8, 33), (3, 1, 7)]:
                check_edge(graph, p, q, features, dtype)
    finally:
        extension._C.use_isa(best)


@native
def test_unknown_instruction_set():
    with pytest.raises(ValueError, match="'mmx' is not built"):
        extension._C.use_isa("mmx")
    with pytest.raises(TypeError):
        extension._C.use_isa(3)
