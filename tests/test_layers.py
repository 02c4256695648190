"""The directions in which the parts of the house know each other, read off their imports."""

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "tensus_tn"
#: What a room may know beside itself and the modules at the top that know no room.
KNOWS = {
    "explorer": set(),
    "network": {"explorer"},
    "fitting": {"network"},
    "propagation": set(),
    "nn": {"explorer", "network", "propagation"},
    "rules": {"network", "propagation"},
    "distributed": {"network", "propagation", "nn"},
    "data": {"propagation"},
    "tasks": {"explorer", "network", "fitting", "propagation", "nn", "data", "distributed"},
}
OPTIONAL = {
    "torch_geometric",
    "torch_sparse",
    "dgl",
    "matplotlib",
    "networkx",
    "pymetis",
    "tensorboard",
}


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imported(path, *, anywhere):
    """The modules that a file imports, at its top or anywhere; but not for types alone."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    nodes = ast.walk(tree) if anywhere else ast.iter_child_nodes(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from names
            if not all(name in MODULES for name in names):
                yield node.module


def ours(path, *, anywhere):
    return {name for name in imported(path, anywhere=anywhere) if name in MODULES}


def room(module):
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and (PACKAGE / parts[1]).is_dir() else None


def test_every_room_has_a_rule():
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert rooms <= set(KNOWS)


@pytest.mark.parametrize("name", MODULES)
def test_a_room_knows_only_what_stands_below_it(name):
    here = room(name)
    if here is None:  # the command line and the demonstration stand above all rooms
        return
    known = {room(other) for other in ours(MODULES[name], anywhere=True)} - {here, None}
    assert known <= KNOWS[here], f"{name} imports from {sorted(known - KNOWS[here])}"


def test_what_the_rooms_share_knows_no_room():
    shared = {
        other
        for name, path in MODULES.items()
        if room(name) is not None
        for other in ours(path, anywhere=True)
        if room(other) is None and other != "tensus_tn"
    }
    for name in shared:
        assert not {other for other in ours(MODULES[name], anywhere=True) if room(other)}, name


def test_imports_have_no_cycle():
    known = {name: ours(path, anywhere=False) - {name} for name, path in MODULES.items()}
    while known:
        free = {name for name, others in known.items() if not others & set(known)}
        assert free, f"a cycle among {sorted(known)}"
        known = {name: others for name, others in known.items() if name not in free}


@pytest.mark.parametrize("name", MODULES)
def test_optional_packages_are_imported_where_they_are_needed(name):
    found = {other.partition(".")[0] for other in imported(MODULES[name], anywhere=False)}
    assert not found & OPTIONAL


@pytest.mark.parametrize("name", MODULES)
def test_no_function_has_the_name_of_its_module(name):
    if name.endswith("__main__"):  # would run the command line
        return
    module = importlib.import_module(name)
    parent, _, leaf = name.rpartition(".")
    assert not parent or getattr(importlib.import_module(parent), leaf) is module


@pytest.mark.parametrize("name", MODULES)
def test_every_module_has_a_test_file_of_its_name(name):
    path = MODULES[name].relative_to(PACKAGE)
    if path.name in ("__init__.py", "__main__.py", "_version.py", "typing.py"):
        return
    test = ROOT / "tests" / path.with_name(f"test_{path.name.lstrip('_')}")
    assert test.exists()


def included(path):
    """The files that a source includes: ours as paths, others as they are written."""
    for name in re.findall(r'^\s*#\s*include\s+["<]([^">]+)[">]', path.read_text(), re.MULTILINE):
        places = ((path.parent / name).resolve(), ROOT / "csrc" / name)
        yield next((place for place in places if place.exists()), name)


@pytest.mark.parametrize(("folder", "other"), [("cpu", "cuda"), ("cuda", "cpu")])
def test_kernels_know_neither_torch_nor_each_other(folder, other):
    """Nor does what they include, directly or not."""
    waiting = [path for path in (ROOT / "csrc" / folder).iterdir() if path.suffix != ".py"]
    assert waiting
    seen = set()
    while waiting:
        path = waiting.pop()
        seen.add(path)
        for found in included(path):
            if isinstance(found, Path):
                assert found.parent.name != other, f"{path} includes {found}"
                waiting += {found} - seen
            else:
                assert not re.match(r"(torch|ATen|c10|Python)\b", found), f"{path} includes {found}"
