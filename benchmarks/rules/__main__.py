"""`python -m benchmarks.rules speed|results --data umls family`; files in benchmarks/results."""

import argparse

from benchmarks.rules import results, speed
from tensus_tn.rules import KnowledgeGraph

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("what", choices=["speed", "results"])
parser.add_argument("--data", nargs="+", default=["umls", "family", "wn18rr", "fb15k237"])
parser.add_argument("--methods", nargs="+", choices=list(results.METHODS), default=["TENSUS"])
parser.add_argument("--seeds", type=int, default=5)
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--rank", type=int, default=2)
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
    if a.what == "speed":
        speed.measure(graph, name, a.steps, a.rank, a.queries, a.repeats, out, not a.no_drum)
    else:
        for seed in range(a.seeds):
            for method in a.methods:
                results.run(graph, name, method, seed, out)
