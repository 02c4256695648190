"""The drawn figures of the README and the concepts: `python docs/figures/draw.py` writes them anew.

Colours are of the Okabe-Ito palette, which is safe for the colour-blind, and never the only sign;
each figure stands on a white card, so that it reads the same on light and dark pages.
"""

from __future__ import annotations

from math import hypot
from pathlib import Path

BLUE, SKY, RED, GREEN, ORANGE = "#0072B2", "#56B4E9", "#D55E00", "#009E73", "#E69F00"
INK, GREY, PALE = "#222222", "#666666", "#EEEEEE"
HERE = Path(__file__).parent
Point = tuple[float, float]


class Figure:
    """An SVG, element by element."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.size, self.title, self.parts = (width, height), title, []

    def add(self, tag: str, content: str = "", **attributes: object) -> None:
        names = {name: name.rstrip("_").replace("_", "-") for name in attributes}
        text = " ".join(f'{names[name]}="{value}"' for name, value in attributes.items())
        self.parts.append(f"<{tag} {text}>{content}</{tag}>")

    def text(
        self, at: Point, content: str, size: int = 15, fill: str = INK, anchor: str = "middle",
        weight: str = "normal",
    ) -> None:  # fmt: skip
        self.add(
            "text", content, x=at[0], y=at[1] + 0.35 * size, font_size=size, fill=fill,
            text_anchor=anchor, font_weight=weight,
        )  # fmt: skip

    def node(
        self, at: Point, label: str, fill: str = SKY, ink: str = INK, radius: int = 19
    ) -> None:
        self.add("circle", cx=at[0], cy=at[1], r=radius, fill=fill)
        self.text(at, label, fill=ink)

    def box(
        self, at: Point, label: str, fill: str, width: int = 50, height: int = 34, ink: str = INK
    ) -> None:
        x, y = at[0] - width / 2, at[1] - height / 2
        self.add("rect", x=x, y=y, width=width, height=height, rx=5, fill=fill)
        self.text(at, label, fill=ink)

    def line(self, a: Point, b: Point, color: str = GREY, width: float = 1.6) -> None:
        self.add("line", x1=a[0], y1=a[1], x2=b[0], y2=b[1], stroke=color, stroke_width=width)

    def arrow(
        self, a: Point, b: Point, label: str = "", bend: float = 0, color: str = GREY,
        width: float = 1.8, gap: int = 22, dash: str = "none", size: int = 14,
    ) -> None:  # fmt: skip
        """A curve from near `a` to near `b`, its middle `bend` to the left, with a label there."""
        length = hypot(b[0] - a[0], b[1] - a[1])
        across = ((b[1] - a[1]) / length, -(b[0] - a[0]) / length)
        control = tuple((a[k] + b[k]) / 2 + 2 * bend * across[k] for k in (0, 1))
        start, end = _towards(a, control, gap), _towards(b, control, gap)
        self.add(
            "path", d=f"M{start[0]:.1f} {start[1]:.1f} Q{control[0]:.1f} {control[1]:.1f} "
            f"{end[0]:.1f} {end[1]:.1f}", fill="none", stroke=color, stroke_width=width,
            stroke_dasharray=dash, marker_end=f"url(#tip{color[1:]})",
        )  # fmt: skip
        if label:
            middle = tuple((start[k] + 2 * control[k] + end[k]) / 4 for k in (0, 1))
            half = 4.3 * len(label) * size / 14 + 3
            self.add(
                "rect", x=middle[0] - half, y=middle[1] - 0.65 * size, width=2 * half,
                height=1.3 * size, fill="white",
            )  # fmt: skip
            self.text(middle, label, size)

    def save(self, name: str) -> None:
        width, height = self.size
        tips = "".join(
            f'<marker id="tip{color[1:]}" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="9" '
            f'markerHeight="9" markerUnits="userSpaceOnUse" orient="auto">'
            f'<path d="M0 0 L10 5 L0 10 z" fill="{color}"/></marker>'
            for color in (GREY, BLUE, RED, GREEN, ORANGE)
        )
        body = "\n".join(self.parts)
        (HERE / name).write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" role="img" font-family="Helvetica, Arial, sans-serif">\n'
            f"<title>{self.title}</title>\n<defs>{tips}</defs>\n"
            f'<rect width="{width}" height="{height}" rx="8" fill="white"/>\n{body}\n</svg>\n'
        )


def _towards(a: Point, b: Point, distance: float) -> Point:
    length = hypot(b[0] - a[0], b[1] - a[1])
    return (a[0] + distance * (b[0] - a[0]) / length, a[1] + distance * (b[1] - a[1]) / length)


def meta_graph() -> None:
    """A DAG and what was learned over it; the numbers are those that `make demo` prints."""
    figure = Figure(
        860, 250, "A DAG with its choices, and the meta-graphs learned at rank 1 and rank 2"
    )

    def panel(x: int, title: str, below: str) -> list[Point]:
        figure.text((x + 120, 22), title, 15, weight="bold")
        figure.text((x + 120, 232), below, 13, GREY)
        return [(x + 20, 132), (x + 120, 132), (x + 220, 132)]

    places = panel(30, "A DAG, each link with choices", "5 x 3 meta-graphs")
    for a, b, several in ((0, 1, ["A", "B", "C", "D", "identity"]), (1, 2, ["B", "D", "identity"])):
        figure.arrow(places[a], places[b])
        x = (places[a][0] + places[b][0]) / 2
        for k, name in enumerate(several):
            figure.text((x, 116 - 15 * (len(several) - 1 - k)), name, 13)
    for at, label in zip(places, "012", strict=True):
        figure.node(at, label, BLUE if label != "1" else SKY, "white" if label != "1" else INK)

    shares = {
        "Rank 1, as in DiffMG and GTN": (
            (
                ("A", "B", 31.5, BLUE), ("A", "D", 17.1, GREY),
                ("C", "B", 17.1, GREY), ("C", "D", 9.3, RED),
            ),
            "test accuracy 77.0 % (75 % is its bound in expectation)",
        ),
        "Rank 2: both, and not their mixtures": (
            (("A", "B", 46.0, BLUE), ("C", "D", 46.0, RED)),
            "test accuracy 99.6 %",
        ),
    }  # fmt: skip
    for (title, (paths, below)), x in zip(shares.items(), (310, 590), strict=True):
        s, _, t = panel(x, title, below)
        rows = [132 + 46 * (k - (len(paths) - 1) / 2) for k in range(len(paths))]
        for (first, second, share, color), y in zip(paths, rows, strict=True):
            m = (s[0] + 100, y)
            dash = "none" if color != GREY else "5 4"
            figure.arrow(s, m, first, color=color, width=share / 12, gap=18, dash=dash)
            figure.arrow(m, t, second, color=color, width=share / 12, gap=18, dash=dash)
            figure.add("circle", cx=m[0], cy=m[1], r=16, fill=PALE)
            figure.text(m, f"{share:.0f} %", 11)
        figure.node(s, "s", BLUE, "white", 16)
        figure.node(t, "t", BLUE, "white", 16)
    figure.save("meta-graph.svg")


def network() -> None:
    """The complete DAG over four nodes, and the tensor network over it."""
    figure = Figure(860, 330, "A DAG with six edges, and the tensor network of six cores over it")
    figure.text((200, 26), "A DAG", 16, weight="bold")
    figure.text((620, 26), "Its tensor network", 16, weight="bold")
    places = [(40 + 107 * k, 170) for k in range(4)]
    edges = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    bends = {(0, 2): 36, (0, 3): 78, (1, 3): -40}
    for j, k in edges:
        figure.arrow(places[j], places[k], f"i{j}{k}", bends.get((j, k), 0))
    for k, at in enumerate(places):
        inner = k in (1, 2)
        figure.node(at, str(k), SKY if inner else BLUE, INK if inner else "white")
    figure.text((200, 316), "edge = an axis i of the tensor, inner node = a rank index r", 13, GREY)

    ranks = {1: (560, 170), 2: (680, 170)}
    cores = {
        (0, 1): (470, 170), (0, 2): (620, 85), (0, 3): (470, 85), (1, 2): (620, 170),
        (1, 3): (620, 255), (2, 3): (770, 170),
    }  # fmt: skip
    for (j, k), at in cores.items():
        for node in (j, k):
            if node in ranks:
                figure.line(at, ranks[node], BLUE, 2.2)
        down = at[1] > 200
        end = (at[0], at[1] + (42 if down else -38))
        figure.line(at, end, ORANGE, 2.2)
        figure.text((end[0] + 16, end[1] + (-4 if down else 6)), f"i{j}{k}", 13)
    for (j, k), at in cores.items():
        figure.box(at, f"W{j}{k}", "#CFE8F7", 46, 30)
    for node, at in ranks.items():
        figure.add("circle", cx=at[0], cy=at[1], r=13, fill=BLUE)
        figure.text(at, f"r{node}", 13, "white")
    figure.text((620, 316), "a rank joins all cores of its node's edges", 13, GREY)
    figure.save("network.svg")


def passes() -> None:
    """One pass for every state that sends, and what a pass does for one node."""
    figure = Figure(
        860,
        360,
        "Three passes over the graph serve all six links; within a pass, segments are mixed at once",
    )
    figure.text((215, 26), "Passes: one for each sending state", 16, weight="bold")
    places = [(50 + 110 * k, 170) for k in range(4)]
    bends = {(0, 2): 40, (0, 3): 82, (1, 3): -44}
    colors, dashes = (BLUE, RED, GREEN), ("none", "7 4", "2 4")
    for j in range(3):
        for k in range(j + 1, 4):
            figure.arrow(
                places[j],
                places[k],
                bend=bends.get((j, k), 0),
                color=colors[j],
                dash=dashes[j],
                width=2.4,
            )
    for k, at in enumerate(places):
        figure.node(at, f"H{k}", PALE)
    for j, (x, what) in enumerate(
        (
            (20, "pass 1: reads H0, feeds H1, H2, H3"),
            (20, "pass 2: reads H1, feeds H2, H3"),
            (20, "pass 3: reads H2, feeds H3"),
        )
    ):
        y = 262 + 26 * j
        figure.add(
            "line",
            x1=x,
            y1=y,
            x2=x + 40,
            y2=y,
            stroke=colors[j],
            stroke_width=2.4,
            stroke_dasharray=dashes[j],
        )
        figure.text((x + 52, y), what, 14, anchor="start")

    figure.text((650, 26), "One pass, at one node n", 16, weight="bold")
    senders = {"A": [65, 95], "B": [160], "C": [225, 255, 285]}
    for (name, rows), color, y in zip(
        senders.items(), (BLUE, RED, GREEN), (80, 160, 255), strict=True
    ):
        for row in rows:
            figure.add("rect", x=465, y=row - 9, width=46, height=18, rx=3, fill=PALE)
            figure.arrow((511, row), (588, y), color=color, gap=4)
        figure.box((612, y), f"&#931; {name}", "#CFE8F7", 46, 30)
        figure.arrow((635, y), (735, 160), f"w[{name}]", color=color, gap=4, size=12)
    figure.text((488, 320), "rows of H", 13, GREY)
    figure.text((612, 320), "segment sums", 13, GREY)
    figure.text((612, 337), "(registers, never stored)", 13, GREY)
    for k, y in enumerate((130, 160, 190)):
        figure.box((785, y), f"H{k + 1}[n] +=", "#FBE3B5", 92, 26)
    figure.text((785, 320), "rows of all states fed", 13, GREY)
    figure.save("passes.svg")


if __name__ == "__main__":
    meta_graph()
    network()
    passes()
