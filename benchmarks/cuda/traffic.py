"""How much the CUDA kernels read, write and compute, and how long that should take: a model.

    python -m benchmarks.cuda.traffic --page docs/cuda-traffic.md

Sizes come from the graphs themselves; nothing is measured here, and every time is a prediction.
docs/cuda-traffic.md explains the model.
"""

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import NamedTuple

from benchmarks.propagate import graphs
from benchmarks.propagate.report import _markdown as markdown
from tensus_tn import Dag, RelationGraph
from tensus_tn.propagation.segments import Segments

MARK = "<!-- The rest is written by benchmarks/cuda/traffic.py. -->"
NUMBER = INDEX = 4  # bytes: float32 and int32
COLUMNS = 16  # of one launch: csrc/cuda/pass.h
GRADIENT_BLOCKS, WARPS = 2048, 4  # each block leaves a partial sum of dw
SPLIT = 128  # longer rows are split: csrc/cuda/kernels.h


class Gpu(NamedTuple):
    """From the data sheets: bytes of L2, bytes a second, float32 operations a second."""

    cache: float
    bandwidth: float
    flops: float


GPUS = {
    "RTX 2080 Ti": Gpu(5.5e6, 616e9, 13.4e12),
    "A100": Gpu(40e6, 1555e9, 19.5e12),
    "H100": Gpu(50e6, 3350e9, 66.9e12),
}


@dataclass(frozen=True)
class Traffic:
    """Bytes that must move whatever the cache, gathers that may hit it, and operations."""

    stream: float = 0
    gathers: tuple[
        tuple[int, int, int], ...
    ] = ()  # (rows read at random, rows there are, bytes each)
    flops: float = 0
    launches: int = 0

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(
            self.stream + other.stream,
            self.gathers + other.gathers,
            self.flops + other.flops,
            self.launches + other.launches,
        )

    def bytes(self, cache: float) -> float:
        """All bytes from and to memory: a row misses the first time, and later if it was evicted."""
        total = self.stream
        for reads, rows, size in self.gathers:
            first = min(reads, rows)
            missed = max(0.0, 1 - cache / (rows * size)) if rows else 0.0
            total += (first + (reads - first) * missed) * size
        return total

    def seconds(self, gpu: Gpu) -> float:
        return max(self.bytes(gpu.cache) / gpu.bandwidth, self.flops / gpu.flops)


@dataclass(frozen=True)
class Pass:
    """One pass over the graph: its width, the columns it feeds, and those that it adds to."""

    rank: int
    columns: int
    added: int
    weights: bool = False  # whether the gradient of the weights is taken as well


def passes(dag: Dag, rank: dict[int, int], backward: bool) -> Iterator[Pass]:
    """As in csrc/ops_cuda.cpp: at the tails forward, at the heads backward."""
    written = set()
    for near in reversed(dag.nodes) if backward else dag.nodes:
        ends = [(e[1], e[0]) if backward else e for e in dag.edges]
        far = [there for here, there in ends if here == near]
        if far:
            added = sum(rank[k] for k in far if k in written)
            yield Pass(rank[near], sum(rank[k] for k in far), added, weights=backward)
            written |= set(far)


def structure_bytes(graph: RelationGraph, s: Segments) -> int:
    values = (
        s.num_segments * (s.seg_val is not None) + s.num_edges * (s.edge_val is not None)
    ) * NUMBER
    loops = s.num_segments * NUMBER * (graph.forward.seg_loop is not None)
    pointers = (s.num_rows + 1 + 2 * s.num_segments + 1 + s.num_edges) * INDEX
    return values + loops + pointers


def flops(graph: RelationGraph, s: Segments, one: Pass, features: int) -> float:
    mixed = (s.num_segments + graph.num_nodes) * one.rank * one.columns
    return 2 * features * (s.num_edges * one.rank + mixed * (2 if one.weights else 1))


def least(graph: RelationGraph, s: Segments, one: Pass, features: int) -> Traffic:
    """The structure once, every column written once (and read, if added to), the rows gathered."""
    state = graph.num_nodes * features * NUMBER
    others = one.columns * one.weights
    return Traffic(
        structure_bytes(graph, s) + (one.columns + one.added + others) * state,
        ((s.num_edges + graph.num_nodes, graph.num_nodes, one.rank * features * NUMBER),),
        flops(graph, s, one, features),
    )


def ours(graph: RelationGraph, s: Segments, one: Pass, features: int) -> Traffic:
    """The same, and: a gather for each launch, the order of rows, parts of long ones, sums of dw."""
    launches = math.ceil(one.columns / COLUMNS)
    once = least(graph, s, one, features)
    degree = s.seg_ptr[s.row_ptr.long()].diff()
    parts = int(((degree[degree > SPLIT] + SPLIT - 1) // SPLIT).sum())
    extra = 2 * parts * one.columns * features * NUMBER
    packed = (graph.num_relations + 1) * one.rank * one.columns * NUMBER
    blocks = min(GRADIENT_BLOCKS, graph.num_nodes // WARPS + 1)
    extra += 2 * blocks * packed * one.weights
    order = graph.num_nodes * INDEX
    again = (launches - 1) * structure_bytes(graph, s) + launches * order
    kernels = launches * (1 + (one.weights or parts > 0))
    return Traffic(once.stream + extra + again, once.gathers * launches, once.flops, kernels)


def materialised(problem: graphs.Problem, one: Pass, features: int) -> Traffic:
    """cuSPARSE: all relations stacked, (C N, N) times (N, P F), written; then the mix reads it.

    Self-loops are edges there. Backward, the mix comes first and the transpose gathers its result.
    """
    graph, stacked = problem.graph, problem.num_sparse
    nodes, loops = graph.num_nodes, bool(graph.loop[:stacked].any())
    entries = graph.num_edges + loops * stacked * nodes
    row = one.rank * features * NUMBER
    state = nodes * features * NUMBER
    sparse = Traffic(
        entries * (INDEX + NUMBER) + stacked * nodes * (INDEX + one.rank * features * NUMBER),
        ((entries, nodes, row),),
        2.0 * entries * one.rank * features,
        1,
    )
    mix = Traffic(
        (stacked + 1) * nodes * row + (one.columns + one.added) * state,
        (),
        2.0 * (stacked + 1) * nodes * one.rank * one.columns * features,
        2,
    )
    if not one.weights:
        return sparse + mix
    products = Traffic((stacked + 1) * nodes * row + one.columns * state, (), mix.flops, 1)
    return sparse + mix + products


def per_edge(
    problem: graphs.Problem, dag: Dag, rank: dict[int, int], backward: bool, features: int
):
    """The materialised form once for every edge of the DAG."""
    written, total = set(), Traffic()
    for tail, head in sorted(dag.edges, reverse=backward):
        near, far = (head, tail) if backward else (tail, head)
        one = Pass(rank[near], rank[far], rank[far] * (far in written), backward)
        written.add(far)
        total += materialised(problem, one, features)
    return total


def compulsory(
    graph: RelationGraph, s: Segments, dag: Dag, rank: dict[int, int], backward: bool, features: int
):
    """No algorithm by passes can do with less: each state is written once, not once a tail."""
    total, state = Traffic(), graph.num_nodes * features * NUMBER
    for one in passes(dag, rank, backward):
        total += least(graph, s, Pass(one.rank, 0, 0), features)
        total += Traffic(flops=flops(graph, s, one, features))
    written = dag.nodes[:-1] if backward else dag.nodes[1:]
    times = 2 if backward else 1  # backward, the states at the tails are read as well, for dw
    return total + Traffic(times * state * sum(rank[k] for k in written))


# ---------------------------------------------------------------------------- the page


def section(problem: graphs.Problem, steps: int, inner: int, features: int) -> str:
    graph, dag = problem.graph, Dag.complete(steps)
    rank = {k: inner if 0 < k < steps else 1 for k in dag.nodes}
    lines = [
        f"### {problem.name}, d = {inner}",
        f"{graph.num_nodes:,} nodes, {graph.num_edges:,} edges, {graph.num_segments:,} segments, "
        f"{graph.num_relations} relations; complete DAG with K = {steps}, source and sink of rank 1, "
        f"F = {features}, float32.",
    ]
    table, totals = [], []
    for backward in (False, True):
        s = graph.backward if backward else graph.forward
        name = "backward" if backward else "forward"
        sums = {"ours": Traffic(), "materialised": Traffic()}
        for one in passes(dag, rank, backward):
            mine, bound = ours(graph, s, one, features), least(graph, s, one, features)
            sums["ours"] += mine
            sums["materialised"] += materialised(problem, one, features)
            table.append([
                f"{name}, {one.rank} -> {one.columns}", f"{mine.flops / 1e6:.0f}",
                *(f"{t.bytes(cache) / 1e6:.1f}" for cache in (math.inf, 0) for t in (bound, mine)),
                *(f"{mine.bytes(c) / bound.bytes(c):.2f}" for c in (math.inf, 0)),
            ])  # fmt: skip
        sums["one by one"] = per_edge(problem, dag, rank, backward, features)
        bound = compulsory(graph, s, dag, rank, backward, features)
        for gpu_name, gpu in GPUS.items():
            mine = sums["ours"].seconds(gpu)
            totals.append([
                f"{name}, {gpu_name}", f"{sums['ours'].bytes(gpu.cache) / bound.bytes(gpu.cache):.2f}",
                f"{bound.seconds(gpu) * 1e6:.0f}", f"{mine * 1e6:.0f}",
                *(f"{t.seconds(gpu) * 1e6:.0f} ({t.seconds(gpu) / mine:.1f}x)"
                  for t in (sums["materialised"], sums["one by one"])),
                " / ".join(str(t.launches) for t in sums.values()),
            ])  # fmt: skip
    lines += [
        markdown(
            ["pass (rank -> columns)", "Mflop", "bound, MB", "ours, MB", "bound, no cache",
             "ours, no cache", "ratio", "ratio, no cache"],
            table,
        ),
        markdown(
            ["whole DAG", "bytes / bound", "bound, µs", "ours, µs", "materialised on cuSPARSE, µs",
             "one SpMM a DAG edge, µs", "launches"],
            totals,
        ),
    ]  # fmt: skip
    return "\n\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cuda.traffic", description=__doc__)
    parser.add_argument("--graphs", nargs="*", default=graphs.available() or ["dblp-shape"])
    parser.add_argument("--ranks", nargs="*", type=int, default=[2, 4])
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--page", type=Path, help="put the tables below the mark of this page")
    options = parser.parse_args()
    text = "\n\n".join(
        section(graphs.load(name), 4, rank, options.features)
        for name in options.graphs
        for rank in options.ranks
    )
    text = f"Predictions, computed on {date.today()}; nothing here was measured.\n\n{text}\n"
    print(text)
    if options.page:
        above = options.page.read_text().split(MARK)[0]
        options.page.write_text(f"{above}{MARK}\n\n{text}")


if __name__ == "__main__":
    main()
