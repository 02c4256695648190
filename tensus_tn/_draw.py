"""The figure of a DAG: nodes from left to right, skip edges as arcs, labels on the edges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tensus_tn.dag import Dag, Edge

# Of the Okabe-Ito palette, which is safe for the colour-blind.
_NODE, _INNER, _EDGE = "#0072B2", "#56B4E9", "#555555"


def draw_dag(dag: Dag, ax: Axes | None, edge_labels: Mapping[Edge, object]) -> Axes:
    """Draw `dag` on `ax`; an edge over `n` steps of the order is an arc of height `~ n`."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import FancyArrowPatch

    for edge in edge_labels:
        if edge not in dag.edges:
            raise ValueError(f"{edge!r} is no edge of the Dag: {list(dag.edges)}")
    if ax is None:
        _, ax = plt.subplots(figsize=(1.6 * len(dag.nodes), 3.2), layout="constrained")
    place = {node: k for k, node in enumerate(dag.nodes)}
    for edge in dag.edges:
        tail, head = place[edge[0]], place[edge[1]]
        height = _height(tail, head)
        curve = f"arc3,rad={-2 * height / (head - tail)}"
        arrow = FancyArrowPatch(
            (tail, 0), (head, 0), connectionstyle=curve, arrowstyle="-|>", mutation_scale=14,
            shrinkA=15, shrinkB=15, color=_EDGE, linewidth=1.2, zorder=1,
        )  # fmt: skip
        ax.add_patch(arrow)
        if edge in edge_labels:
            box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none"}
            middle = (tail + head) / 2
            label = str(edge_labels[edge])
            ax.text(middle, height, label, ha="center", va="center", fontsize=9, bbox=box, zorder=2)
    for node, x in place.items():
        color = _NODE if node in (dag.source, dag.sink) else _INNER
        ax.scatter([x], [0], s=700, color=color, zorder=3)
        text = "white" if color == _NODE else "black"
        ax.text(x, 0, str(node), ha="center", va="center", color=text, zorder=4)
    heights = [_height(place[a], place[b]) for a, b in dag.edges]
    ax.set_xlim(-0.4, len(dag.nodes) - 0.6)
    ax.set_ylim(min(*heights, 0) - 0.35, max(*heights, 0) + 0.35)
    ax.axis("off")
    return ax


def _height(tail: int, head: int) -> float:
    """Of the middle of an arc: edges to the next node are straight, others alternate in side."""
    span = head - tail
    side = 1 if tail % 2 == 0 else -1
    return 0.0 if span == 1 else side * 0.42 * (span - 1)
