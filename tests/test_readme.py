"""Every block of Python in the README, and on the pages of the site, runs as it is written."""

import re
from inspect import isclass, isfunction
from pathlib import Path
from typing import Any

import pytest
import torch

import tensus_tn.data
import tensus_tn.nn
import tensus_tn.rules
import tensus_tn.tasks
from tensus_tn.data.catalogue import data_folder
from tensus_tn.tasks.metrics import f1

ROOT = Path(__file__).parent.parent
PAGES = sorted(ROOT.glob("docs/concepts/*.md")) + sorted(ROOT.glob("docs/how-to/*.md"))


def fenced(page: Path) -> list[str]:
    return page.read_text().split("```")[1::2]


def python(page: Path) -> list[str]:
    return [block.removeprefix("python") for block in fenced(page) if block.startswith("python\n")]


README = python(ROOT / "README.md")


def test_the_readme_has_its_six_examples():
    assert len(README) == 6


def test_the_network_of_the_readme_learns_dblp():
    if not (data_folder() / "gtn_dblp.npz").exists():
        pytest.skip("gtn_dblp.npz is not in $TENSUS_DATA")
    block = next(block for block in README if "MetaGraphNet" in block)
    told = 'load("planted").to_hetero_data(), "t"'
    assert told in block
    names: dict[str, Any] = {}
    torch.manual_seed(0)
    block = block.replace(told, 'load("dblp").to_hetero_data(), "author"')
    exec(compile(block, "README.md", "exec"), names)
    # Seed 0 has 94.4 here and seed 1 93.9, so one seed is fixed: where sums are rounded otherwise, the
    # same seed may end a little lower.
    assert f1(names["predicted"], names["y"][names["test"]], names["classes"])[0] > 0.94


@pytest.mark.parametrize("block", README, ids=range(len(README)))
def test_a_block_of_the_readme_runs_alone(block, capsys):
    exec(compile(block, "README.md", "exec"), {})
    if "tensorly" in block:  # its output is quoted
        quoted = next(text for text in fenced(ROOT / "README.md") if "error 0." in text)
        numbers = [
            [float(x) for x in re.findall(r"\d[\d.]*", text)]
            for text in (quoted, capsys.readouterr().out)
        ]
        assert numbers[0] == pytest.approx(numbers[1], abs=2e-3)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run_one_after_the_other(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in python(page):
        exec(compile(block, str(page), "exec"), names)


def test_every_public_name_is_on_a_page_of_the_api():
    text = "\n".join(page.read_text() for page in ROOT.glob("docs/api/*.md"))
    shown = {path.rsplit(".", 1)[1] for path in re.findall(r"^::: (\S+)$", text, re.MULTILINE)}
    for module in (tensus_tn, tensus_tn.data, tensus_tn.nn, tensus_tn.rules, tensus_tn.tasks):
        named = {name: getattr(module, name) for name in module.__all__}
        public = {name for name, x in named.items() if isclass(x) or isfunction(x)}
        assert public <= shown, f"{module.__name__}: {sorted(public - shown)}"
