"""The memory of a loss and its gradient, beside what dense states would take."""

import json
from pathlib import Path

import torch

from tensus_tn.rules import RuleModel
from tensus_tn.rules.training import TrainingQueries
from tensus_tn.rules.walks import make_queries


def megabytes(kind):
    """`VmRSS`, what the process has now, or `VmHWM`, the most that it had (on Linux)."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{kind}:")[2].split()[0]) / 1024


def forget_the_most():
    Path("/proc/self/clear_refs").write_text("5")


def measure(graph, name, steps, rank, count, out):
    """How much the process grows at most, after a first query."""
    torch.set_num_threads(1)
    model = RuleModel(graph, steps=steps, rank=rank)
    training = TrainingQueries(graph)
    chosen = torch.randperm(len(training), generator=torch.Generator().manual_seed(0))[:count]
    chosen = chosen[training.asked[chosen, 0].argsort(stable=True)]

    def run(some):
        queries = make_queries(training.asked[some], training.known, training.own[some])
        model.zero_grad()
        model.loss(queries).backward()

    run(chosen[:1])  # what one query takes has the size of the graph and of the cores
    forget_the_most()
    before = megabytes("VmRSS")
    run(chosen)
    states = 2 * sum(model._ranks()) - 1  # and their gradients
    row = {
        "data": name, "steps": steps, "rank": rank, "queries": len(chosen), "width": model.width,
        "grown_megabytes": megabytes("VmHWM") - before,
        "dense_megabytes": len(chosen) * graph.num_entities * states * 4 / 2**20,
    }  # fmt: skip
    print(json.dumps(row), flush=True)
    with open(out, "a") as file:
        file.write(json.dumps(row) + "\n")
