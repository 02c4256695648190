"""All runs in the order of their importance; each leaves one line, and is skipped where it is there."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.reproduce.methods import METHODS
from benchmarks.reproduce.peers import PEERS
from benchmarks.reproduce.results import add, read
from benchmarks.reproduce.settings import DATA, NODES, NOT_RANDOM, PAIRS, PARTIAL, TUNED
from tensus_tn.data import load
from tensus_tn.tasks import Task, make_task

MAIN = ("tensus", "diffmg", "published", "cp", "rank1")
ABLATIONS = ("tensus-d3", "tensus-d4", "tensus-d5")
RANKS = ("recipe-rank1", "recipe-d3", "recipe-d4", "recipe-d5", "recipe-cp")
ALTERNATING = ("alternating-rank1", "alternating-cp", "alternating")
RANK_STUDY = ("dblp", "imdb")
#: Recommendation with the library's inputs and loss, beside ours.
PAIR_ROWS = (
    "recipe-none", "recipe-rank1", "recipe-cp", "recipe-published", "recipe-lightgcn", "recipe-rgcn",
)  # fmt: skip
PAIR_PEERS = ("gcn", "gat", "rgcn", "hgt")
SEEDS = 5
FEW_SEEDS = 3  # of the rank study with a search, which nothing rests on
DEFAULT_SEEDS = 10  # of the defaults for nodes, and of the rank study under them
VARIANTS = {"dblp-diffmg": ("dblp", {"node_types": "diffmg"})}


class Run(NamedTuple):
    """One method on one data set with one seed."""

    data: str
    method: str
    seed: int


def plan(seeds: int) -> list[Run]:
    """The main rows, seed after seed; then the baselines, then the ablations; none of them twice."""
    planned: dict[Run, None] = {}
    few = min(seeds, FEW_SEEDS)
    for methods, data, count in (
        (MAIN, DATA, seeds),
        (("diffmg-restarts",), DATA, seeds),
        (("published-tuned",), tuple(name for name in DATA if TUNED[name]), seeds),
        (("soft", "soft-cp", "soft-rank1", "gtn"), DATA, seeds),
        (("recipe",), NODES, DEFAULT_SEEDS),
        (("recipe",), PAIRS, seeds),
        (("recipe-rank1", "recipe-cp"), NODES, seeds),
        (RANKS, RANK_STUDY, DEFAULT_SEEDS),
        (ALTERNATING, ("dblp",), DEFAULT_SEEDS),
        (PAIR_ROWS, PAIRS, seeds),
        (NOT_RANDOM, PAIRS, 1),
        (("gems",), PAIRS, seeds),
        (("gtn-published", "gtn-tensus"), NODES, seeds),
        ((*PEERS, "metapath2vec"), NODES, seeds),
        (("average-seeds", "average-meta-graphs"), NODES, seeds),
        (("more-labels",), NODES, seeds),
        (("tensus", "diffmg"), tuple(VARIANTS), seeds),
        (ABLATIONS, RANK_STUDY, few),
        (("tensus", "rank1"), (PARTIAL,), 1),
        (PAIR_PEERS, PAIRS, seeds),
    ):
        for seed in range(count):
            for name in data:
                planned.update(dict.fromkeys(Run(name, method, seed) for method in methods))
    return list(planned)


def execute(run: Run, path: Path) -> dict[str, Any]:
    """Run it, or read what it left in the file of results."""
    if done := read(path).get(run):
        return done
    name, options = VARIANTS.get(run.data, (run.data, {}))
    task, start = _task(name, **options), time.perf_counter()
    outcome = METHODS[run.method](name, task, run.seed)
    result = {
        **run._asdict(), "metric": task.metric, **outcome, "seconds": time.perf_counter() - start
    }  # fmt: skip
    add(path, result)
    return result


@cache
def _task(name: str, **options: Any) -> Task:
    """With ids where nodes have no features: the same as one-hot rows, and faster."""
    task = make_task(load(name, **options), "diffmg", inputs=["features"], even=False)
    for kind in task.x.keys() - task.data.features.keys():
        task.x[kind] = torch.arange(task.data.node_counts[kind])
    return task


def processor_seconds(result: dict[str, Any]) -> float:
    """Of search and training: on a shared machine, wall time says little."""
    return float(result.get("search_seconds", 0.0) + result["train_seconds"])
