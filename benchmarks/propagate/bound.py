"""Our passes beside loops that only move the same data: forward, backward, and by rank.

    python -m benchmarks.propagate.bound

All states have the rank. How much longer a pass takes backward, or at a higher rank, may be due to
memory: the loops, which compute nothing, say how much of it is.
"""

import argparse
from collections.abc import Callable

import torch

from benchmarks.propagate import graphs, roof
from benchmarks.propagate.measure import inputs
from benchmarks.propagate.peers import make_run
from benchmarks.timing import format_time, keep_freed_memory, measure
from tensus_tn import Dag

LINKS, FEATURES = 4, 64
WAYS = ("forward", "backward")


def run_case(name: str, ranks: list[int], seconds: float) -> dict[tuple[str, int, str], float]:
    """Seconds by contender ("ours" or "loops"), rank and way, all timed in turn."""
    problem, dag = graphs.load(name), Dag.complete(LINKS)
    run = make_run(None, problem, dag)
    calls: dict[tuple[str, int, str], Callable[[], object]] = {}
    for rank in ranks:
        h, weights, grad = inputs(problem, dag, rank, FEATURES)
        y, given = run(h, weights), (h, *weights.values())

        def forward(h=h, weights=weights) -> object:
            with torch.no_grad():
                return run(h, weights)

        def backward(y=y, given=given, grad=grad) -> object:
            return torch.autograd.grad(y, given, grad, retain_graph=True)

        for way, ours in zip(WAYS, (forward, backward), strict=True):
            loops = roof.loops(problem, dag, rank, FEATURES, backward=way == "backward")
            if not loops:
                raise RuntimeError("the loops are C++: they need a compiler, c++ or $CXX")

            def move(loops=loops) -> None:
                for loop in loops.values():
                    loop()

            calls["ours", rank, way], calls["loops", rank, way] = ours, move
    times = measure(calls, seconds=seconds)
    return {key: timing.median for key, timing in times.items()}


def table(name: str, ranks: list[int], times: dict[tuple[str, int, str], float]) -> str:
    """Markdown, a row for each rank: times, backward over forward, and both over the first rank."""
    lines = []
    for rank in ranks:
        cells = [f"{name}, rank {rank}"]
        for who in ("ours", "loops"):
            forward, backward = (times[who, rank, way] for way in WAYS)
            cells += [format_time(forward), format_time(backward), f"{backward / forward:.2f}"]
            cells += [f"{times[who, rank, way] / times[who, ranks[0], way]:.2f}" for way in WAYS]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", nargs="*", default=["dblp", "acm", "imdb"])
    parser.add_argument("--ranks", nargs="*", type=int, default=[2, 4, 8])
    parser.add_argument("--seconds", type=float, default=20.0, help="for each graph")
    options = parser.parse_args()
    keep_freed_memory()
    columns = ("forward", "backward", "b / f", "f, by rank", "b, by rank")
    titles = ["graph", *(f"{who}: {c}" for who in ("ours", "loops") for c in columns)]
    print(f"| {' | '.join(titles)} |\n{'| --- ' * len(titles)}|")
    for name in options.graphs:
        print(
            table(name, options.ranks, run_case(name, options.ranks, options.seconds)), flush=True
        )


if __name__ == "__main__":
    main()
