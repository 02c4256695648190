"""The picture of a DAG as SVG: states from left to right, skip links as arcs, a label on every link."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from tensus_tn.dag import Dag, Edge

_STEP, _RADIUS, _RISE, _MARGIN = 150, 17, 46, 26

# Colours that can be read on a light page and on a dark one; the page overrides them by its own.
_STYLE = (
    ".link{fill:none;stroke:#888;stroke-width:1.6}.state{fill:#0072b2}.inner{fill:#56b4e9}"
    ".name{font:600 13px sans-serif;fill:#fff;text-anchor:middle}"
    ".label{font:12px sans-serif;text-anchor:middle;fill:#c25a00}"
)


def dag_svg(dag: Dag, labels: Mapping[Edge, str], *, style: bool = True) -> str:
    """The SVG of a DAG; link `e` has the ids `link-e` and `label-e`, by its number in `dag.edges`.

    Args:
        dag: States and links.
        labels: Text for some or all links.
        style: Whether the picture carries its own style sheet; the page has a better one.

    Example:
        >>> dag_svg(Dag.path(1), {(0, 1): "cites"})[:4]
        '<svg'
    """
    place = {node: k for k, node in enumerate(dag.nodes)}
    rises = [_rise(place[tail], place[head]) for tail, head in dag.edges]
    above, below = max(*rises, 0.0), min(*rises, 0.0)
    width = _STEP * (len(place) - 1) + 2 * (_RADIUS + _MARGIN)
    height = above - below + 2 * (_RADIUS + _MARGIN)
    middle = above + _RADIUS + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="dag" role="img" '
        f'viewBox="0 0 {width} {height:.0f}" width="{width}" height="{height:.0f}">',
        f"<style>{_STYLE}</style>" if style else "",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="11" '
        'markerHeight="11" markerUnits="userSpaceOnUse" orient="auto">'
        '<path d="M0,0L8,4L0,8z" fill="context-stroke"/></marker></defs>',
    ]
    for e, (edge, rise) in enumerate(zip(dag.edges, rises, strict=True)):
        parts.append(_link(e, _x(place[edge[0]]), _x(place[edge[1]]), middle, rise))
    for e, (edge, rise) in enumerate(zip(dag.edges, rises, strict=True)):
        x = (_x(place[edge[0]]) + _x(place[edge[1]])) / 2
        text = escape(labels.get(edge, ""))
        parts.append(
            f'<text id="label-{e}" class="label" x="{x}" y="{middle - rise - 7}">{text}</text>'
        )
    for node, k in place.items():
        kind = "state" if node in (dag.source, dag.sink) else "state inner"
        parts.append(f'<circle class="{kind}" cx="{_x(k)}" cy="{middle}" r="{_RADIUS}"/>')
        name = escape(str(node))
        parts.append(f'<text class="name" x="{_x(k)}" y="{middle + 4.5}">{name}</text>')
    return "".join([*parts, "</svg>"])


def _x(place: int) -> int:
    return _MARGIN + _RADIUS + _STEP * place


def _rise(tail: int, head: int) -> float:
    """The height of an arc: a link to the next state is straight, others go above or below in turn."""
    span = head - tail
    return 0.0 if span == 1 else (1 if tail % 2 == 0 else -1) * _RISE * (span - 1)


def _link(number: int, start: int, end: int, middle: float, rise: float) -> str:
    """A curve between the rims of two circles; its control point is twice as high as its top."""
    control = ((start + end) / 2, middle - 2 * rise)
    dx, dy = control[0] - start, control[1] - middle
    length = (dx**2 + dy**2) ** 0.5
    out = (_RADIUS / length * dx, _RADIUS / length * dy)
    into = ((_RADIUS + 2) / length * dx, (_RADIUS + 2) / length * dy)
    return (
        f'<path id="link-{number}" class="link" marker-end="url(#tip)" '
        f'd="M{start + out[0]:.1f},{middle + out[1]:.1f} Q{control[0]:.1f},{control[1]:.1f} '
        f'{end - into[0]:.1f},{middle + into[1]:.1f}"/>'
    )
