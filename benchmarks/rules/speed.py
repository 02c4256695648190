"""Forward and backward of 64 queries: the frontier against dense columns, torch.sparse and DRUM's."""

import json
import statistics
import time

import torch

from benchmarks.rules import peers
from tensus_tn.rules import RuleModel
from tensus_tn.rules.training import TrainingQueries
from tensus_tn.rules.walks import make_queries


def some_queries(graph, count):
    """Training queries of the most frequent relation: the best case of products for all of them."""
    training = TrainingQueries(graph)
    r = training.asked[:, 0].mode().values
    mine = torch.arange(len(training))[training.asked[:, 0] == r]
    mine = mine[torch.randperm(len(mine), generator=torch.Generator().manual_seed(0))[:count]]
    return make_queries(training.asked[mine], training.known, training.own[mine])


def seconds(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measure(graph, name, steps, rank, count, repeats, out, slow=True):
    torch.set_num_threads(1)
    model = RuleModel(graph, steps=steps, rank=rank, popularity=False)
    queries = some_queries(graph, count)
    matrices, relations = peers.operators(model.walks), peers.relation_graph(model.walks)

    def run(scores, *on):
        model.zero_grad()
        peers.loss(scores(*on, model.weights(), queries), queries).backward()

    def frontier():
        model.zero_grad()
        model.loss(queries).backward()

    ways = {
        "frontier": frontier,
        "propagate, dense": lambda: run(peers.dense, relations, model.dag),
        "torch.sparse, grouped": lambda: run(peers.grouped, model.walks, matrices),
    }
    if slow:
        ways["DRUM's formulation"] = lambda: run(peers.drum, model.walks, matrices)
    times = {way: [] for way in ways}
    frontier()  # warm
    for _ in range(repeats):
        for way, call in ways.items():
            times[way].append(seconds(call))
    for way, found in times.items():
        row = {
            "data": name, "steps": steps, "rank": rank, "queries": len(queries.relation), "way": way,
            "width": model.width, "median": statistics.median(found), "all": found,
        }  # fmt: skip
        print(json.dumps(row), flush=True)
        with open(out, "a") as file:
            file.write(json.dumps(row) + "\n")
