"""The version stands in one place; what repeats it for others must agree. So must the extension."""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import tensus_tn
from tensus_tn.propagation import extension

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent


def test_the_citation_has_the_version():
    text = (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^version: (.*)$", text, re.MULTILINE)[1] == tensus_tn.__version__


def test_the_changelog_has_the_version_or_what_is_to_come():
    first = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1]
    assert first.split(",")[0] in (tensus_tn.__version__, "Unreleased")


@pytest.mark.skipif(extension._C is None, reason="the extension is not built")
def test_the_extension_runs_on_the_oldest_torch_and_python_that_we_name():
    audit = pytest.importorskip("torch_abi_audit")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    torch = next(r for r in map(Requirement, project["dependencies"]) if r.name == "torch")
    report = audit.inspect_extension(Path(extension._C.__file__))
    assert report.torch.stable, report.torch
    assert report.cpython.compliant, report.cpython
    assert Version(report.torch.min_torch_version) in torch.specifier


def test_importing_loads_neither_the_compiler_of_torch_nor_optional_packages():
    names = ", ".join(tensus_tn.__all__)
    script = f"from tensus_tn import {names}\nfrom tensus_tn.nn import MetaGraphConv\nimport sys"
    heavy = ("torch._dynamo", "scipy", "matplotlib", "networkx", "torch_geometric")
    script += f"\nprint([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stdout + done.stderr


PROGRAM = """
import torch
from tensus_tn import Dag, DagTensor, decompose, propagate
from tensus_tn.data import load
from tensus_tn.nn import MetaGraphConv
from tensus_tn.tasks import Config

reveal_type(DagTensor(Dag.path(2), 3, 2).marginal([(0, 1)]))
reveal_type(decompose(torch.rand(3, 3), Dag.path(2), 2))
reveal_type(propagate)
reveal_type(load("planted"))
reveal_type(Config().rank)
reveal_type(MetaGraphConv(4, 4, (["a"], [("a", "r", "a")])))
Dag.path("two")
"""
REVEALED = [
    "torch._tensor.Tensor",
    "tuple[tensus_tn.network.tensor.DagTensor, tensus_tn.fitting.report.Report]",
    "def (graph: tensus_tn.propagation.relation_graph.RelationGraph | ",
    "tensus_tn.data.dataset.Dataset",
    "int",
    "tensus_tn.nn.conv.MetaGraphConv",
]


def installed_in_place():
    """Whether the interpreter has this checkout installed, not as a copy."""
    try:
        origin = json.loads(distribution("tensus_tn").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        return False
    return origin.get("url") == ROOT.as_uri() and bool(origin["dir_info"].get("editable"))


@pytest.mark.slow
@pytest.mark.skipif(not installed_in_place(), reason="this checkout is not installed in place")
def test_mypy_knows_the_types_of_an_installation_in_place(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text(PROGRAM)
    paths = {"PYTHONPATH", "MYPYPATH"}
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", "cache", "program.py"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name not in paths},
        capture_output=True,
        text=True,
    )
    notes = re.findall(r'Revealed type is "(.*)"', done.stdout)
    assert len(notes) == len(REVEALED), done.stdout + done.stderr
    for note, expected in zip(notes, REVEALED, strict=True):
        assert note.startswith(expected)
    errors = re.findall("error: (.*)", done.stdout)
    assert errors == [
        'Argument 1 to "path" of "Dag" has incompatible type "str"; expected "int"  [arg-type]'
    ]
