"""The version stands in one place; what repeats it for others must agree."""

import re
from pathlib import Path

import tensus_tn

ROOT = Path(__file__).parent.parent


def test_the_citation_has_the_version():
    text = (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^version: (.*)$", text, re.MULTILINE)[1] == tensus_tn.__version__


def test_the_changelog_has_the_version_or_what_is_to_come():
    first = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1]
    assert first.split(",")[0] in (tensus_tn.__version__, "Unreleased")
