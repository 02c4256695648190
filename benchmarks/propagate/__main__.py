"""One command: measure, print a table, write the results as JSON and draw them.

Results of earlier runs stay in the file unless the same case is measured again, so that a long
measurement can be made in parts.
"""

import argparse
import json
import warnings
from pathlib import Path

import torch

from benchmarks.propagate import graphs, report
from benchmarks.propagate.heads import HEADS, run_heads
from benchmarks.propagate.measure import run_case, summarise_ours
from benchmarks.propagate.peers import ABSENT, PEERS
from benchmarks.timing import keep_freed_memory, machine_facts

ROOT = Path(__file__).parents[2]
PACKAGES = ("tensus_tn", "numpy", "scipy", "torch_geometric", "dgl", "torch_sparse")
SWEEPS = {  # what varies: its values, and the graphs
    "rank": ((1, 2, 3, 4, 5, 6, 8), ("dblp",)),  # of the inner states
    "features": ((16, 32, 64, 128, 256), ("dblp",)),
    "degree": ((1, 2, 4, 8, 16, 32, 64), ("dblp-shape",)),
    "threads": ((1, 2), ("dblp", "douban")),
}
HEADS_ON = ["dblp", "acm", "imdb"]
SWEEP_PEERS = (
    "CSR stacked",
    "sparse reduce stacked",
    "sparse reduce mix first",
    "embedding_bag segments, loops folded",
)


def main() -> None:
    options = _options()
    keep_freed_memory()
    warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
    stored = {"machine": {}, "absent": [], "cases": {}, "sweeps": {}}
    if options.output.exists():
        stored |= json.loads(options.output.read_text())
    stored["machine"], stored["absent"] = machine_facts(PACKAGES), ABSENT
    for name in options.graphs:
        for normalisation in options.normalisations:
            problem = graphs.load(name, normalisation)
            for steps in options.steps:
                key = f"{problem.name}/K={steps}"
                before = stored["cases"].get(key, {}).get("peers", {})
                chosen = [peer for peer in PEERS if options.peers in peer.title]
                if options.missing:
                    chosen = [peer for peer in chosen if peer.title not in before]

                def save(case: dict, key: str = key, before: dict = before) -> None:
                    merged = {**case, "peers": {**before, **case["peers"]}}
                    summarise_ours(merged)
                    stored["cases"][key] = merged
                    _write(options.output, stored)

                save(run_case(problem, chosen, steps=steps, seconds=options.seconds, save=save))
    for name in options.sweeps:
        for key, case in _sweep(name, options.seconds):
            cases = {**stored["sweeps"].get(name, {}), key: case}
            stored["sweeps"][name] = dict(sorted(cases.items(), key=_graph_and_value))
            _write(options.output, stored)
    for name in options.heads:
        problem = graphs.load(name)
        for count in HEADS:
            case = run_heads(problem, count, seconds=2 * options.seconds)
            stored.setdefault("heads", {})[f"{name}/{count}"] = case
            _write(options.output, stored)
    print(report.table(stored))
    if options.page:
        report.write_page(stored, options.page)


def _sweep(name: str, seconds: float):
    """The cases of a sweep, only the strongest peers among them."""
    values, names = SWEEPS[name]
    peers = [peer for peer in PEERS if peer.title in SWEEP_PEERS]
    threads = torch.get_num_threads()
    for graph in names:
        for value in values:
            problem = graphs.load(graph, degree=value if name == "degree" else None)
            if name == "threads":
                torch.set_num_threads(value)
            sizes = {name: value} if name in ("rank", "features") else {}
            if name == "rank":  # as in a layer, where source and sink have none
                sizes["ends"] = 1
            yield f"{graph}/{value}", run_case(problem, peers, seconds=seconds, **sizes)
            torch.set_num_threads(threads)


def _graph_and_value(item: tuple[str, dict]) -> tuple[str, float]:
    graph, value = item[0].split("/")
    return graph, float(value)


def _write(path: Path, stored: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(stored, separators=(",", ":")) + "\n")
    partial.replace(path)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.propagate", description=__doc__)
    everything = [*graphs.available(), "small", "dblp-shape", "douban-shape"]
    parser.add_argument("--graphs", nargs="*", default=everything, metavar="GRAPH")
    parser.add_argument("--normalisations", nargs="*", default=graphs.NORMALISATIONS)
    parser.add_argument("--steps", nargs="*", type=int, default=[4, 1], help="K of the DAG")
    parser.add_argument("--peers", default="", help="only those with this in their title")
    parser.add_argument("--missing", action="store_true", help="only what the file does not have")
    parser.add_argument("--sweeps", nargs="*", default=list(SWEEPS), choices=list(SWEEPS))
    parser.add_argument("--heads", nargs="*", default=HEADS_ON, metavar="GRAPH")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each peer and direction")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks/results/propagate.json")
    parser.add_argument("--page", type=Path, help="also write the tables and figures to a page")
    parser.add_argument("--quick", action="store_true", help="a tiny graph, to see that all works")
    options = parser.parse_args()
    if options.quick:
        options.graphs, options.sweeps, options.seconds = ["tiny"], [], 0.01
        options.heads = ["tiny"]
    return options


if __name__ == "__main__":
    main()
