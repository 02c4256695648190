"""Packages whose names load their modules late."""

import subprocess
import sys

import pytest

import tensus_tn.data
import tensus_tn.tasks
from tensus_tn._lazy import lazy_names


@pytest.mark.parametrize("package", [tensus_tn, tensus_tn.data, tensus_tn.tasks])
def test_every_public_name_is_there_and_listed(package):
    for name in package.__all__:
        assert getattr(package, name) is not None
        assert name in dir(package)
    with pytest.raises(AttributeError, match=f"'{package.__name__}' has no attribute 'nothing'"):
        package.nothing  # noqa: B018


def test_a_module_is_loaded_by_its_name_alone():
    script = """
import sys
import tensus_tn.data, tensus_tn.tasks
assert "torch" not in sys.modules
tensus_tn.tasks.Config, tensus_tn.data.has_pairs
assert "torch" not in sys.modules and "numpy" not in sys.modules
tensus_tn.Dag, tensus_tn.data.Dataset
assert "torch" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_name_is_looked_up_once():
    get, _ = lazy_names("tensus_tn", {"Dag": "dag"})
    assert get("Dag") is tensus_tn.Dag
    assert vars(tensus_tn)["Dag"] is get("Dag")
