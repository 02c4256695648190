"""Several heads of one total width: in one pass by groups of columns, and one pass a head."""

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from benchmarks.propagate.graphs import Problem
from benchmarks.propagate.measure import ROUNDS, TOLERANCE, errors, inputs, results
from benchmarks.propagate.peers import Weights
from benchmarks.timing import measure
from tensus_tn.dag import Dag
from tensus_tn.propagation.functional import propagate_dag

HEADS = (2, 4, 8)
ONE, TOGETHER, APART = "one head", "in one pass", "one pass a head"


def run_heads(
    problem: Problem, heads: int, *, rank: int = 2, features: int = 64, seconds: float = 4.0
) -> dict[str, Any]:
    """Time one head and several of the same total width, in both ways: forward, and with backward.

    The state of the source and that of the sink have the rank of the others, as in all cases here.
    """
    dag, graph = Dag.complete(4), problem.graph
    h, weights, grad = inputs(problem, dag, rank, features)
    generator = torch.Generator().manual_seed(1)
    several = {
        edge: torch.randn(heads, *w.shape, generator=generator).softmax(1).requires_grad_()
        for edge, w in weights.items()
    }
    groups = [heads * f // features for f in range(features)]

    def apart(h: Tensor, weights: Weights) -> Tensor:
        shares = enumerate(h.chunk(heads, -1))
        one = [
            propagate_dag(graph, dag, x, {e: w[g] for e, w in weights.items()}) for g, x in shares
        ]
        return torch.cat(one, -1)

    runs = {
        ONE: (lambda h, w: propagate_dag(graph, dag, h, w), weights),
        TOGETHER: (lambda h, w: propagate_dag(graph, dag, h, w, groups=groups), several),
        APART: (apart, several),
    }
    found = errors(*(results(runs[way][0], h, several, grad) for way in (TOGETHER, APART)))
    if not max(found.values()) < TOLERANCE:
        raise AssertionError(f"heads in one pass compute something else: {found}")

    def forward(run, w) -> Tensor:
        with torch.no_grad():
            return run(h, w)

    calls = {
        "forward": {name: (lambda r=r, w=w: forward(r, w)) for name, (r, w) in runs.items()},
        "both": {name: (lambda r=r, w=w: results(r, h, w, grad)) for name, (r, w) in runs.items()},
    }
    case: dict[str, Any] = {"heads": heads, "features": features, "rank": rank}
    for way, contenders in calls.items():
        times = measure(contenders, seconds=seconds, **(ROUNDS | {"most_rounds": 200}))
        case[way] = {
            name: {**asdict(timing), "ratio": timing.median / times[ONE].median}
            for name, timing in times.items()
        }
    return case
