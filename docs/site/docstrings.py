"""An extension of Griffe: what our docstrings have for Sphinx, in the words of Markdown."""

import re
from textwrap import dedent

import griffe

RULES = (
    (r"^([ ]*)\.\. math::\n((?:[ ]+\S.*\n?)+)", lambda m: f"{m[1]}$$\n{_indented(m)}\n{m[1]}$$\n"),
    (r":(?:class|meth|func):`~?([\w.]*?)(\w+)`", lambda m: f"`{m[2]}`"),
    (r"::\n\n(?=[ ]+\S)", lambda m: ":\n\n"),
    (r"^([ ]*)Example:$", lambda m: f"{m[1]}Examples:"),
)


class Markdown(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring is not None:
            for pattern, replacement in RULES:
                text = obj.docstring.value
                obj.docstring.value = re.sub(pattern, replacement, text, flags=re.MULTILINE)


def _indented(match: re.Match[str]) -> str:
    return "\n".join(match[1] + line for line in dedent(match[2]).strip().splitlines())
