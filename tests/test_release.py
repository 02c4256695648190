"""The version stands in one place; what repeats it for others must agree. So must the extension."""

import re
import subprocess
import sys
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


def test_every_public_name_is_there_and_listed():
    for name in tensus_tn.__all__:
        assert getattr(tensus_tn, name) is not None
        assert name in dir(tensus_tn)
    with pytest.raises(AttributeError, match="'tensus_tn' has no attribute 'nothing'"):
        tensus_tn.nothing  # noqa: B018


def test_importing_loads_neither_the_compiler_of_torch_nor_optional_packages():
    names = ", ".join(tensus_tn.__all__)
    script = f"from tensus_tn import {names}\nfrom tensus_tn.nn import MetaGraphConv\nimport sys"
    heavy = ("torch._dynamo", "scipy", "matplotlib", "networkx", "torch_geometric")
    script += f"\nprint([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stdout + done.stderr
