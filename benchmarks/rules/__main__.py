"""`python -m benchmarks.rules speed|memory|results --data umls family`; files in benchmarks/results."""

import argparse

from benchmarks.rules import memory, results, speed
from tensus_tn.rules import KnowledgeGraph

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("what", choices=["speed", "memory", "results"])
parser.add_argument("--data", nargs="+", default=["umls", "family", "wn18rr", "fb15k237"])
methods = [*results.METHODS, *results.TRAINING, "preset"]
parser.add_argument("--methods", nargs="+", choices=methods, default=["TENSUS"])
parser.add_argument("--seeds", type=int, default=5)
parser.add_argument("--steps", type=int, nargs="+", help="results: by the graph; else 3")
parser.add_argument("--ranks", type=int, nargs="+", help="results: the default; else 2")
parser.add_argument("--threads", type=int, default=1, help="results: of a run")
parser.add_argument("--queries", type=int, default=64)
parser.add_argument("--repeats", type=int, default=3)
parser.add_argument(
    "--no-drum", action="store_true", help="leave DRUM's formulation out: it is slow"
)
parser.add_argument("--out", help="a file of lines of JSON, appended to")
a = parser.parse_args()
out = a.out or f"benchmarks/results/rules-{a.what}.jsonl"
for name in a.data:
    graph = KnowledgeGraph.load(name)
    if a.what != "results":
        for steps in a.steps or [3]:
            for rank in a.ranks or [2]:
                if a.what == "memory":
                    memory.measure(graph, name, steps, rank, a.queries, out)
                else:
                    speed.measure(
                        graph, name, steps, rank, a.queries, a.repeats, out, not a.no_drum
                    )
    else:
        for seed in range(a.seeds):
            for method in a.methods:
                for steps in a.steps or [None]:
                    for rank in a.ranks or [None]:
                        results.run(graph, name, method, seed, out, steps, rank, a.threads)
