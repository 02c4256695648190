"""`python -m benchmarks.rules.report`: the tables of docs/rules-measurements.md, from the results."""

import argparse
import re
import statistics
from pathlib import Path

from benchmarks.rules.results import read

NAMES = {"TENSUS": "TENSUS (tensor train)"}
PEERS = ("torch.sparse, grouped", "DRUM's formulation")


def markdown(columns, rows):
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def grouped(rows, key):
    """Rows with the same key, in the order in which keys appear."""
    found = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def with_spread(values):
    mean = f"{statistics.mean(values):.3f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.3f}"


def defaults_table(rows):
    """Runs whose length is the default of their graph: one line for each method and rank asked for."""
    columns = ["data", "method", "steps, rank", "parameters", "seeds", "valid MRR", "test MRR"]
    columns += ["Hits@10", "ties in favour", "ties against", "CPU s"]
    lines = []
    mine = [row for row in rows if row["asked_steps"] is None]
    for (data, method, rank), some in grouped(
        mine, lambda row: (row["data"], row["method"], row["asked_rank"])
    ).items():
        name = NAMES.get(method, method) if rank is None else f"rank {rank}"
        ties = [
            [row["test"]["by ties"][t]["mrr"] for row in some]
            for t in ("optimistic", "pessimistic")
        ]
        seconds = [row["cpu_seconds"] for row in some if row["cpu_seconds"] is not None]
        lines.append([
            data, name, f"{some[0]['steps']}, {some[0]['rank']}", some[0]["parameters"], len(some),
            with_spread([row["valid"]["mrr"] for row in some]),
            with_spread([row["test"]["mrr"] for row in some]),
            f"{statistics.mean(row['test']['hits@10'] for row in some):.3f}",
            *(f"{statistics.mean(x):.3f}" for x in ties),
            f"{statistics.median(seconds):.0f}" if seconds else "",
        ])  # fmt: skip
    return markdown(columns, lines)


def grid_table(rows):
    """Runs whose length and rank were asked for: validation MRR, a line for each length."""
    mine = [row for row in rows if row["asked_steps"] and row["asked_rank"]]
    ranks = sorted({row["rank"] for row in mine})
    lines = []
    for (data, method, steps), some in grouped(
        mine, lambda row: (row["data"], row["method"], row["steps"])
    ).items():
        cells = [[row["valid"]["mrr"] for row in some if row["rank"] == d] for d in ranks]
        seeds = {len(cell) for cell in cells if cell}
        shown = f"{min(seeds)} to {max(seeds)}" if len(seeds) > 1 else str(*seeds)
        means = [f"{statistics.mean(cell):.3f}" if cell else "" for cell in cells]
        lines.append([data, NAMES.get(method, method), steps, shown, *means])
    return markdown(["data", "method", "T", "seeds", *(f"d = {d}" for d in ranks)], lines)


def speed_table(rows):
    """Medians in milliseconds, and how many times as long the faster peer takes."""
    columns = ["data", "sharing a frontier", "ours", "`propagate`, dense", "torch.sparse", "DRUM's"]
    lines = []
    for data, some in grouped(rows, lambda row: row["data"]).items():
        ms = {row["way"]: 1e3 * row["median"] for row in some}
        ours, *others = (ms.get(way) for way in ("frontier", "propagate, dense", *PEERS))
        best = min(ms[peer] for peer in PEERS if peer in ms)
        shown = [f"{x:.0f}" if x else "" for x in others]
        lines.append([data, some[0]["width"], f"{ours:.1f}", *shown, f"{best / ours:.0f}"])
    return markdown([*columns, "times the faster of both"], lines)


def fill(page, tables):
    """The page with its tables, each after its mark, anew."""
    for name, text in tables.items():
        mark = f"<!-- {name} -->"
        if mark not in page:
            raise ValueError(f"the page has no mark {mark}")
        page = re.sub(f"{mark}\n(\\|.*\n)*", lambda _: f"{mark}\n{text}\n", page)  # noqa: B023
    return page


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", default="benchmarks/results")
    parser.add_argument("--page", default="docs/rules-measurements.md")
    a = parser.parse_args()
    of = {name: read(f"{a.results}/rules-{name}.jsonl") for name in ("speed", "results")}
    page = Path(a.page)
    tables = {
        "speed": speed_table(of["speed"]),
        "defaults": defaults_table(of["results"]),
        "grid": grid_table(of["results"]),
    }
    page.write_text(fill(page.read_text(), tables))
