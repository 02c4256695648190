"""Every block of Python in the README, and on the pages of the site, runs as it is written."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted(ROOT.glob("docs/concepts/*.md")) + sorted(ROOT.glob("docs/how-to/*.md"))


def fenced(page: Path) -> list[str]:
    return page.read_text().split("```")[1::2]


def python(page: Path) -> list[str]:
    return [block.removeprefix("python") for block in fenced(page) if block.startswith("python\n")]


README = python(ROOT / "README.md")


def test_the_readme_has_its_four_examples():
    assert len(README) == 4


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
def test_the_blocks_of_a_page_run_one_after_the_other(page):
    names: dict[str, object] = {}
    for block in python(page):
        exec(compile(block, str(page), "exec"), names)
