"""`python -m benchmarks.rules.curves`: MRR against rank and length, from the runs of the grid."""

import argparse

import matplotlib as mpl

from benchmarks.rules.results import read

mpl.use("Agg")
import matplotlib.pyplot as plt

COLORS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#a463f2", "#9c6b4e")


def means(rows, along, name):
    """The mean validation MRR over seeds: `{value of along: {value of name: MRR}}`."""
    found = {}
    for row in rows:
        found.setdefault(row[along], {}).setdefault(row[name], []).append(row["valid"]["mrr"])
    return {
        a: {b: sum(x) / len(x) for b, x in sorted(of.items())} for a, of in sorted(found.items())
    }


def draw(ax, curves, label, title, x):
    for color, (value, of) in zip(COLORS, curves.items(), strict=False):
        ax.plot(list(of), list(of.values()), "o-", color=color, label=label.format(value))
    ax.set(
        xlabel=x,
        ylabel="validation MRR",
        title=title,
        xticks=sorted({k for of in curves.values() for k in of}),
    )
    ax.grid(alpha=0.3)
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))


def figure(rows):
    """Two panels for every graph with a grid of runs."""
    grid = [r for r in rows if r["method"] == "TENSUS" and r["asked_steps"] and r["asked_rank"]]
    names = list(dict.fromkeys(r["data"] for r in grid))
    size = (9, 3.6 * len(names))
    fig, panels = plt.subplots(len(names), 2, figsize=size, layout="constrained", squeeze=False)
    for name, (left, right) in zip(names, panels, strict=True):
        mine = [r for r in grid if r["data"] == name]
        draw(left, means(mine, "steps", "rank"), "{} links", f"{name}: rank", "rank d")
        draw(right, means(mine, "rank", "steps"), "rank {}", f"{name}: length", "links T")
    return fig


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", default="benchmarks/results/rules-results.jsonl")
    parser.add_argument("--out", default="docs/rules-curves.svg")
    a = parser.parse_args()
    figure(read(a.results)).savefig(a.out)
