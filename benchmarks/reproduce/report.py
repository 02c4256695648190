"""The page of the documentation, with the paper's tables beside ours, from the results of the runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks.reproduce import figures
from benchmarks.reproduce.confidence import half_width
from benchmarks.reproduce.results import read
from benchmarks.reproduce.runs import RANK_STUDY, SEEDS, plan, processor_seconds
from benchmarks.reproduce.settings import (
    BUDGET,
    DATA,
    GEMS,
    MORE_LABELS,
    NODES,
    NOT_RANDOM,
    PAIR_AIMS,
    PAIRS,
    PAPER,
    PARTIAL,
    SOFT,
    TUNED,
)
from benchmarks.timing import machine_facts

Results = Sequence[dict[str, Any]]

TITLES = {
    "metapath2vec": "metapath2vec",
    "gcn": "GCN", "gat": "GAT", "rgcn": "RGCN", "han": "HAN", "magnn": "MAGNN, small", "hgt": "HGT",
    "gtn-published": "GTN as published", "gtn-tensus": "TENSUS, d = 2, on GTN's path",
    "gtn": "GTN's path in DiffMG's network",
    "gems": "GEMS, a genetic search",
    "diffmg": "DiffMG, its search",
    "diffmg-restarts": "DiffMG, best of 3 searches",
    "published": "DiffMG, its published meta-graph",
    "published-tuned": "the same, our settings",
    "soft-rank1": "d = 1, soft", "soft-cp": "CP, soft", "soft": "TENSUS, d = 2, soft",
    "recipe-rank1": "d = 1, soft, the defaults", "recipe-cp": "CP, soft, the defaults",
    "recipe": "TENSUS, d = 2, soft, the defaults",
    "rank1": "d = 1, our search", "cp": "CP, our search", "tensus": "TENSUS, d = 2, our search",
    "rank1-either": "d = 1, soft or searched", "cp-either": "CP, soft or searched",
    "tensus-either": "TENSUS, d = 2, soft or searched",
    "average-seeds": "TENSUS, the defaults, 5 seeds averaged",
    "average-meta-graphs": "TENSUS, our search, best 3 meta-graphs averaged",
}  # fmt: skip

#: On pairs, with the library's inputs, bias and loss in the place of DiffMG's.
PAIR_TITLES = {
    "recipe-bias": "biases alone",
    "recipe-degrees": "biases, log degrees",
    "recipe-regression": "logistic regression on counts and spectral products",
    "recipe-none": "no propagation",
    "recipe-lightgcn": "LightGCN", "recipe-rgcn": "RGCN",
    "recipe-published": "DiffMG's published meta-graph",
    "recipe-rank1": "d = 1", "recipe-cp": "CP", "recipe": "TENSUS, d = 2",
}  # fmt: skip
DIFFMG_TITLES = {method: title for method, title in TITLES.items() if method not in PAIR_TITLES}

#: Rows made of two others: for each seed the searched meta-graph or the soft model, by validation.
EITHER = {
    "rank1-either": ("rank1", "soft-rank1"),
    "cp-either": ("cp", "soft-cp"),
    "tensus-either": ("tensus", "soft"),
}


#: The row that is held against the paper's and against these.
TENSUS = "tensus-either"
OTHERS = (
    "diffmg", "diffmg-restarts", "published", "published-tuned", "cp-either", "rank1-either",
)  # fmt: skip


#: The rank study: the defaults, our search, and what both are called.
RANK_ROWS = (
    ("recipe-rank1", "rank1", "d = 1"), ("recipe", "tensus", "d = 2"),
    *((f"recipe-d{d}", f"tensus-d{d}", f"d = {d}") for d in (3, 4, 5)),
    ("recipe-cp", "cp", "CP, as many parameters as d = 2"),
)  # fmt: skip


def select(results: Results, data: str, method: str) -> list[dict[str, Any]]:
    """The runs of a method on a data set, in the order of their seeds."""
    mine = [r for r in results if r["data"] == data and r["method"] == method]
    return sorted(mine, key=lambda r: int(r["seed"]))


def with_either(results: Results) -> list[dict[str, Any]]:
    """The results, and the rows of `EITHER` where both are there; each has the time of both."""
    chosen = []
    for method, pair in EITHER.items():
        for name in DATA:
            searched, soft = ({r["seed"]: r for r in select(results, name, m)} for m in pair)
            for seed in searched.keys() & soft.keys():
                both = searched[seed], soft[seed]
                best = min(both, key=lambda r: float(r["criterion"]))
                seconds = sum(processor_seconds(r) for r in both)
                times = {"train_seconds": seconds, "search_seconds": 0.0}
                chosen.append(best | {"method": method, "chosen": best["method"]} | times)
    return [*results, *chosen]


def spread(values: Sequence[float]) -> str:
    """Mean and standard deviation, and of how many; a dash where there are none."""
    if not values:
        return "-"
    deviation = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
    return f"{fmean(values):.2f}{deviation} ({len(values)})"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table in Markdown."""
    return ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)]


def scores(
    results: Results,
    data: Sequence[str],
    split: str = "test",
    titles: Mapping[str, str] = TITLES,
) -> list[str]:
    """Ours, mean ± deviation (seeds); test scores with the paper's number beside them."""
    rows = []
    for method, title in titles.items():
        ours = {name: [r[split] for r in select(results, name, method)] for name in data}
        cells = [title]
        for name in data:
            cells.append(spread(ours[name]))
            if split == "test":
                theirs = PAPER.get(method, {}).get(name)
                cells.append("-" if theirs is None else f"{theirs:.2f}")
        if any(ours.values()):
            rows.append(cells)
    paper = ["paper"] if split == "test" else []
    return table(["", *(cell for name in data for cell in (name, *paper))], rows)


def verdict(results: Results) -> list[str]:
    """For each data set: does TENSUS reach the paper, and is it ahead of DiffMG and of CP?"""
    lines = []
    for name in NODES + PAIRS:
        mine = [r["test"] for r in select(results, name, TENSUS)]
        if not mine:
            lines.append(f"- **{name}**: not run.")
            continue
        target = PAPER[TENSUS][name]
        difference = fmean(mine) - target
        words = [f"{fmean(mine):.2f}, paper {target:.2f} ({difference:+.2f}"]
        words[0] += ", reached)" if difference >= 0 else ", not reached)"
        for other in OTHERS:
            theirs = {r["seed"]: r["test"] for r in select(results, name, other)}
            both = [r["test"] - theirs[r["seed"]] for r in select(results, name, TENSUS)
                    if r["seed"] in theirs]  # fmt: skip
            if both:
                words.append(f"against {TITLES[other]}: {spread(both)}")
        lines.append(f"- **{name}**: " + "; ".join(words) + ".")
    return lines


def pair_verdict(results: Results) -> list[str]:
    """For both data sets: does the recipe reach paper and aim, and is it ahead of the other rows?"""
    lines = []
    for name in PAIRS:
        mine = {r["seed"]: r["test"] for r in select(results, name, "recipe")}
        if not mine:
            lines.append(f"- **{name}**: not run.")
            continue
        mean, words = fmean(mine.values()), []
        for what, wanted in (("paper", PAPER[TENSUS][name]), ("aim", PAIR_AIMS[name])):
            words.append(f"{what} {wanted:.2f} ({mean - wanted:+.2f})")
        for other in list(PAIR_TITLES)[:-1]:
            runs = {r["seed"]: r["test"] for r in select(results, name, other)}
            theirs = dict.fromkeys(mine, runs.get(0)) if other in NOT_RANDOM and runs else runs
            both = [test - theirs[seed] for seed, test in mine.items() if seed in theirs]
            if both:
                words.append(f"against {PAIR_TITLES[other]}: {spread(both)}")
        lines.append(f"- **{name}**: {mean:.2f}; " + "; ".join(words) + ".")
    return lines


def settings() -> list[str]:
    """Budgets, and what was tuned."""
    rows = []
    for name, budget in BUDGET.items():
        tuned, soft = (
            ", ".join(f"{key} {value}" for key, value in changes.get(name, {}).items())
            for changes in (TUNED, SOFT)
        )
        short = f"{budget.epochs} epochs" if budget.epochs else "on propagated features"
        cost = f"{budget.rounds} x {budget.batch}, {short}"
        rows.append([name, cost, str(budget.finalists), tuned or "DiffMG's", soft or "DiffMG's"])
    return table(["data", "candidates", "trained in full", "settings", "soft models"], rows)


def times(results: Results, data: Sequence[str], titles: Mapping[str, str]) -> list[str]:
    """Processor seconds of one run, the mean over seeds."""
    rows = []
    for method, title in titles.items():
        cells = [title]
        for name in data:
            runs = select(results, name, method)
            seconds = [processor_seconds(run) for run in runs]
            cells.append(f"{fmean(seconds):.0f}" if seconds else "-")
        if set(cells[1:]) != {"-"}:
            rows.append(cells)
    return table(["processor seconds", *data], rows)


def ranks(results: Results) -> list[str]:
    """Test scores of the defaults and of our search at every rank, with confidence intervals."""
    rows = []
    for soft, search, title in RANK_ROWS:
        cells = [title]
        for name in RANK_STUDY:
            runs = select(results, name, soft)
            cells.append(interval([r["test"] for r in runs]))
            cells.append(f"{fmean(map(processor_seconds, runs)):.1f}" if runs else "-")
            cells.append(interval([r["test"] for r in select(results, name, search)]))
        rows.append(cells)
    columns = [f"{name}, {what}" for name in RANK_STUDY for what in ("soft", "seconds", "searched")]
    return table(["", *columns], rows)


def alternating(results: Results) -> list[str]:
    """Soft training in turns on DBLP: the mean at three structures, and every seed by itself."""
    rows = []
    for method, title in (
        ("alternating-rank1", "d = 1"), ("alternating-cp", "CP"), ("alternating", "TENSUS, d = 2"),
    ):  # fmt: skip
        values = [r["test"] for r in select(results, "dblp", method)]
        rows.append(
            [title, interval(values), ", ".join(f"{value:.1f}" for value in sorted(values))]
        )
    return table(["dblp", "test macro-F1", "seeds, in order"], rows)


def interval(values: Sequence[float]) -> str:
    """The mean, half the width of its 95 % confidence interval (Student's t), and of how many."""
    if len(values) < 2:
        return spread(values)
    return f"{fmean(values):.2f} ± {half_width(values):.2f} ({len(values)})"


def labels(results: Results) -> list[str]:
    """The defaults with the labels of the split, and with more of them."""
    rows = []
    for method, title in (("recipe", "as in the paper"), ("more-labels", "70 % of all labels")):
        cells = [title]
        for name in NODES:
            cells.append(spread([r["test"] for r in select(results, name, method)]))
        rows.append(cells)
    counts = ", ".join(f"{count:,}" for count in MORE_LABELS.values())
    return [*table(["labels to train with", *NODES], rows), "", f"70 % are {counts} labels."]


def total_time(results: Results) -> str:
    """The processor time of the runs that there are, and what all of the plan would take by them.

    A run that is missing counts as much as those of its row do in the mean; a row without any, nothing.
    """
    planned = plan(SEEDS)
    seconds = {(r["data"], r["method"], r["seed"]): processor_seconds(r) for r in results}
    rows: dict[tuple[str, str], list[float]] = {}
    for (data, method, _), time in seconds.items():
        rows.setdefault((data, method), []).append(time)
    there = [seconds[run] for run in planned if run in seconds]
    missing = [run for run in planned if run not in seconds]
    expected = [fmean(rows[run[:2]]) for run in missing if run[:2] in rows]
    unknown = len(missing) - len(expected)
    hours = (sum(there) + sum(expected)) / 3600
    if not missing:
        runs = f"all {len(planned)} runs of the plan"
        return f"{hours:.1f} processor hours for {runs}, {hours / 2:.1f} on two cores"
    return (
        f"{sum(there) / 60:.0f} processor minutes for {len(there)} of the {len(planned)} runs of the "
        f"plan; {len(missing)} are missing. With the mean of its row for each of these the plan comes "
        f"to {hours:.1f} processor hours, {hours / 2:.1f} on two cores"
        + (f" ({unknown} runs of rows that have none yet are not counted)" if unknown else "")
    )


def page(results: Results, facts: dict[str, Any], prose: str) -> str:
    """Fill the tables into the text."""
    runs, time = len(results), total_time(results)
    results = with_either(results)
    parts = {
        "nodes": scores(results, NODES), "nodes_val": scores(results, NODES, "val"),
        "pairs": scores(results, PAIRS, titles=DIFFMG_TITLES),
        "pairs_val": scores(results, PAIRS, "val", DIFFMG_TITLES),
        "recipe": scores(results, PAIRS, titles=PAIR_TITLES), "recipe_verdict": pair_verdict(results),
        "recipe_val": scores(results, PAIRS, "val", PAIR_TITLES),
        "recipe_times": times(results, PAIRS, PAIR_TITLES),
        "types": types(results), "verdict": verdict(results), "settings": settings(),
        "times": times(results, DATA, TITLES), "partial": partial(results), "ranks": ranks(results),
        "labels": labels(results), "alternating": alternating(results),
    }  # fmt: skip
    machine = (
        f"{facts['processor']}, {facts['cores']} cores, one thread a run, torch {facts['torch']}, "
        f"{facts['date']}; {runs} runs"
    )
    filled = {key: "\n".join(lines) for key, lines in parts.items()}
    generations = (
        f"{GEMS.rounds} generations of {GEMS.batch} meta-graphs, {GEMS.epochs} epochs for each"
    )
    return prose.format(**filled, machine=machine, total_time=time, gems=generations)


def types(results: Results) -> list[str]:
    """DBLP with the right node types and with DiffMG's."""
    rows = [
        [TITLES[m], *(spread([r["test"] for r in select(results, name, m)])
                      for name in ("dblp", "dblp-diffmg"))]
        for m in ("tensus", "diffmg")
    ]  # fmt: skip
    return table(["macro-F1", "right types", "DiffMG's types"], rows)


def partial(results: Results) -> list[str]:
    """The data set that is incomplete: no score of others belongs beside these."""
    rows = []
    for method in ("rank1", "tensus"):
        for run in select(results, PARTIAL, method):
            numbers = [f"{run['val']:.2f}", f"{run['test']:.2f}", f"{processor_seconds(run):.0f}"]
            rows.append([TITLES[method], *numbers])
    return table([PARTIAL, "validation AUC", "test AUC", "processor seconds"], rows)


def write(path: Path, root: Path) -> None:
    """Write `docs/reproduction.md` and its figures."""
    results = list(read(path).values())
    prose = (Path(__file__).parent / "reproduction.md.in").read_text()
    (root / "docs/reproduction.md").write_text(
        page(results, machine_facts(["torch_geometric"]), prose)
    )
    figures.write(results, root / "docs")
