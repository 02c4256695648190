"""A hook of MkDocs: formulas become MathML when the site is built, without JavaScript."""

import html
import re

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(content: str, **_: object) -> str:
    return FORMULA.sub(_mathml, content)


def _mathml(match: re.Match[str]) -> str:
    display = "block" if match[1] == "div" else "inline"
    return convert(html.unescape(match[2]).strip(), display=display)
