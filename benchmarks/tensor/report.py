"""The table of ratios, as text and as a page of the documentation, and the results as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.tensor.peers import OURS, PEERS
from benchmarks.tensor.run import Result
from benchmarks.timing import format_time

COLUMNS = list(PEERS)

HEAD = """# Performance of the tensor network

`make bench`, or `python -m benchmarks.tensor`, prints this table and writes this page.

A number says how many times the time of tensus_tn a library takes: **2.0 x** means that tensus_tn
is twice as fast, and a number below 1, marked *loss*, that it is slower. All work on raw (`free`)
cores with 6 choices and rank 4, in float32, on one thread. Every contender first had to give the
same numbers, and for the backward pass the same gradients, as a computation in float64. Each is
used with what it has for the purpose and tuned: paths and expressions are made beforehand, cores
lie in the layout that suits it, and of several ways (batch first or last, optimizers, modes) its
fastest is taken. The entries are {batch} random ones; every contender starts from the same
integer index. Times are medians of rounds in which all take turns in one process, with the
quartiles in brackets.

- opt_einsum, cotengra and quimb gather a row of every core for each entry and contract these.
- TensorLy evaluates no entries: it makes the dense tensor and looks them up.
- TensorKrowch contracts one-hot vectors, made from the index.
- "plan of the sum" is the time to find a contraction order, from an empty cache.
- "decompose" is a tensor train of a dense tensor, and the dense tensor of it. tensus_tn starts from
  the same TT-SVD as the others and improves it by alternating least squares, in float64: more work
  for an error that is no higher.
"""


def row(result: Result) -> list[str]:
    """The cells of a result: task, network, our time with its quartiles, a ratio for each peer."""
    cells = [result.task, result.network]
    if OURS not in result.times:
        return [*cells, "-", *["-"] * len(COLUMNS)]
    ours = result.times[OURS]
    spread = f"{format_time(ours.low)} to {format_time(ours.high)}"
    cells.append(f"{format_time(ours.median)} [{spread}]")
    for name in COLUMNS:
        if name not in result.times:
            cells.append("-")
            continue
        ratio = result.ratio(name)
        cells.append(f"{ratio:.{1 if ratio >= 1 else 2}f} x{'' if ratio >= 1 else ' loss'}")
    return cells


def text(result: Result) -> str:
    """One line for the terminal, and one with the times of the peers."""
    task, network, ours, *ratios = row(result)
    pairs = [f"{n} {r}" for n, r in zip(COLUMNS, ratios, strict=True) if r != "-"]
    lines = [f"{task} | {network} | {ours}", f"    {', '.join(pairs)}"]
    if result.goal:
        lines.append(f"    goal: {result.goal}")
    return "\n".join(lines)


def page(results: list[Result], facts: dict[str, Any], batch: int) -> str:
    """The page of the documentation."""
    lines = [
        HEAD.format(batch=f"{batch:,}"),
        f"Measured on {facts['date']}: {_machine(facts)}.",
        "",
    ]
    lines += _table(["task", "network", OURS, *COLUMNS, "goal"], [*_goal_rows(results)])
    lines += ["", "## Times of all", ""]
    lines += _table(
        ["task", "network", "library", "median", "quartiles", "rounds", "relative error"],
        [cells for result in results for cells in _detail_rows(result)],
    )
    lines += ["", "## Absent", ""]
    lines += [f"- {reason}" for reason in _absences(results)]
    return "\n".join(lines) + "\n"


def write(results: list[Result], facts: dict[str, Any], batch: int, root: Path) -> None:
    """Write `benchmarks/results/tensor.json` and `docs/performance-tensor.md` under `root`."""
    data = {"machine": facts, "batch": batch, "results": [r.to_dict() for r in results]}
    (root / "benchmarks/results").mkdir(exist_ok=True)
    (root / "benchmarks/results/tensor.json").write_text(json.dumps(data, indent=1) + "\n")
    text, completion = page(results, facts, batch), root / "benchmarks/results/completion.json"
    if completion.exists():  # measured by a program of its own
        text += "\n" + json.loads(completion.read_text())["section"]
    (root / "docs/performance-tensor.md").write_text(text)


def _machine(facts: dict[str, Any]) -> str:
    packages = ", ".join(f"{name} {v}" for name, v in facts["packages"].items() if v)
    return (
        f"{facts['processor']}, {facts['cores']} cores, {facts['threads']} thread used, "
        f"Python {facts['python']}, torch {facts['torch']}, {packages}"
    )


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    return ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)]


def _goal_rows(results: list[Result]) -> list[list[str]]:
    return [[*row(result), result.goal] for result in results]


def _detail_rows(result: Result) -> list[list[str]]:
    return [
        [
            result.task,
            result.network,
            name,
            format_time(timing.median),
            f"{format_time(timing.low)} to {format_time(timing.high)}",
            str(timing.rounds),
            f"{result.errors[name]:.1e}" if name in result.errors else "",
        ]
        for name, timing in result.times.items()
    ]


def _absences(results: list[Result]) -> list[str]:
    """Each reason once, with the tasks that it keeps a library from."""
    tasks: dict[tuple[str, str], list[str]] = {}
    for result in results:
        for name, reason in result.absent.items():
            tasks.setdefault((name, reason), []).append(f"{result.task} ({result.network})")
    return [
        f"{name}: {reason}"
        + ("" if reason.startswith("not installed") else f": {'; '.join(where)}")
        for (name, reason), where in tasks.items()
    ]
