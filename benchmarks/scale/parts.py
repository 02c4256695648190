"""A graph in parts: the cost of one part, and the processor time of the slowest of several.

    python -m benchmarks.scale.parts --nodes 200000 --edges 2000000 --parts 2 4

Every part is a process that computes in one thread. Times are medians over rounds, forward and backward
together, in seconds of the processor: of that thread, and of the whole process with the threads of the
transport, which copy every byte through the loopback. All parts run side by side on this machine,
so wall times say nothing about several machines. Processes that run side by side also share its memory
and caches, which those on several machines would not: so the whole graph is timed twice, by one process
alone, and by one on every core, in turn with the parts.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

from benchmarks.scale.community import DAG, FEATURES, RANK, Step, community_graph
from benchmarks.timing import measure
from tensus_tn.distributed import DistributedGraph, Partition, Processes, init, partition
from tensus_tn.propagation.relation_graph import RelationGraph

CLOCKS = {"wall": time.perf_counter, "thread": time.thread_time, "process": time.process_time}


#: Less than all: every so-many-th node of the sink and of the source, or some relations for links.
CASES: dict[str, tuple[int, int, list[str] | None]] = {
    "one relation of four": (1, 1, ["A", "identity"]),
    "one node of a hundred": (100, 1, None),
    "one node of a thousand": (1000, 1, None),
    "a support of one node in a thousand": (1, 1000, None),
}


def step_of(case: str, graph: RelationGraph | DistributedGraph, features: torch.Tensor) -> Step:
    """A step over some nodes and relations; `features` are those of all nodes."""
    *every, relations = CASES[case]
    own = graph.own if isinstance(graph, DistributedGraph) else torch.arange(graph.num_nodes)
    rows, support = (None if n == 1 else (own % n == 0).nonzero().flatten() for n in every)
    return Step(graph, features[own], rows, relations, support)


def measure_case(case: str, graph: DistributedGraph, features: torch.Tensor, count: int) -> Any:
    """Seconds by each clock, those of a step that plans, and the bytes of one."""
    step = step_of(case, graph, features)
    step()
    before = graph.bytes_received
    step()
    received = graph.bytes_received - before
    graph._plans.clear()
    dist.barrier()
    begin = time.thread_time()
    step()
    planned = time.thread_time() - begin
    return {"planned": planned, "bytes": received, **rounds(step, count, dist.barrier)}


class BareExchange:
    """What a step sends and receives, packed before, and nothing else: the floor of the transport."""

    def __init__(self, graph: DistributedGraph) -> None:
        self.halos = (graph.forward.halo, graph.backward.halo)
        widths = [FEATURES, *[RANK * FEATURES] * (len(DAG.nodes) - 2)]
        self.rows = [
            (halo, torch.ones(len(halo), width), torch.ones(len(halo.send), width))
            for halo in self.halos
            for width in widths
        ]

    def __call__(self) -> None:
        """All exchanges of a step, one after the other."""
        for halo, out, rows in self.rows:
            dist.all_to_all_single(out, rows, halo.receive, halo.give)


def rounds(
    step: Callable[[], object], count: int, before: Callable[[], object] | None = None
) -> dict[str, float]:
    """Median seconds of a round, by each clock."""
    return in_turn([step], count, before)[0]


def in_turn(
    steps: Sequence[Callable[[], object]], count: int, before: Callable[[], object] | None = None
) -> list[dict[str, float]]:
    """The same of several steps, one of each in a round."""
    times: list[dict[str, list[float]]] = [{name: [] for name in CLOCKS} for _ in steps]
    for step in steps:
        step()
    for _ in range(count):
        for step, of_step in zip(steps, times, strict=True):
            if before is not None:
                before()
            begin = {name: clock() for name, clock in CLOCKS.items()}
            step()
            for name, clock in CLOCKS.items():
                of_step[name].append(clock() - begin[name])
    return [{name: median(seconds) for name, seconds in of_step.items()} for of_step in times]


def one_part(graph: RelationGraph, features: torch.Tensor) -> None:
    """A DistributedGraph of one part against the whole graph, in turn."""
    alone = DistributedGraph.from_graph(graph, partition(graph, 1))
    times = measure({"whole": Step(graph, features), "part": Step(alone, features)}, seconds=15)
    whole, part = times["whole"].median, times["part"].median
    print(f"one part: {part * 1e3:.0f} ms, whole graph {whole * 1e3:.0f} ms: {part / whole:.3f}")


def work(
    rank: int,
    graph: RelationGraph,
    owners: Partition,
    features: torch.Tensor,
    count: int,
    out: Path,
) -> None:
    """One part of several: measure, compare with one process, and write what was found."""
    torch.set_num_threads(1)
    os.environ["RANK"] = str(rank)
    processes = init(timeout=120)
    mine = DistributedGraph.from_graph(graph, owners)
    step = Step(mine, features[mine.own])
    y, dh = step()
    before = mine.bytes_received
    step()
    received = mine.bytes_received - before
    whole = Step(graph, features) if rank < (os.cpu_count() or 1) else lambda: None
    times, beside = in_turn([step, whole], count, dist.barrier)
    inner = RANK * (len(DAG.nodes) - 2)
    halos = len(mine.forward.halo) + len(mine.backward.halo)
    found = {
        "own": mine.num_nodes,
        "edges": mine.num_edges,
        "halo": len(mine.forward.halo),
        "interior": len(mine.forward.interior),
        "bytes": received,
        "bound": halos * (1 + inner) * FEATURES * 4,
        **times,
        "whole": beside["thread"],
        "bare": rounds(BareExchange(mine), count, dist.barrier),
        "cases": {case: measure_case(case, mine, features, count) for case in CASES},
    }
    everyone = processes.gather(found)
    whole_y, whole_dh = mine.gather(y), mine.gather(dh)
    if rank == 0:
        torch.save((everyone, whole_y, whole_dh), out)
    dist.destroy_process_group()


def several(
    graph: RelationGraph, features: torch.Tensor, parts: int, method: str, count: int
) -> None:
    """Parts of a graph against one process: bits, bytes and processor time."""
    begin = time.perf_counter()
    owners = partition(graph, parts, method=method)  # type: ignore[arg-type]
    took = time.perf_counter() - begin
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(parts))
        out = Path(folder) / "found"
        arguments = (graph, owners, features, count, out)
        multiprocessing.start_processes(work, arguments, nprocs=parts, start_method="fork")
        everyone, y, dh = torch.load(out)
    del os.environ["WORLD_SIZE"]
    whole = Step(graph, features)
    expected_y, expected_dh = whole()
    alone = rounds(whole, count)

    def in_ms(clock: str) -> list[int]:
        return [round(1e3 * found[clock]) for found in everyone]

    beside = median(found["whole"] for found in everyone[: os.cpu_count()])

    def efficiency(clock: str, seconds: float) -> float:
        return round(seconds / parts / max(found[clock] for found in everyone), 3)

    report = {
        "parts": parts,
        "method": method,
        "seconds to partition": round(took, 2),
        "same bits": torch.equal(y, expected_y) and torch.equal(dh, expected_dh),
        "bytes are the bound": all(found["bytes"] == found["bound"] for found in everyone),
        "megabytes a part": [round(found["bytes"] / 1e6, 1) for found in everyone],
        "halo / N": round(sum(found["halo"] for found in everyone) / graph.num_nodes, 2),
        "interior / N": round(sum(found["interior"] for found in everyone) / graph.num_nodes, 2),
        "edges a part": [found["edges"] for found in everyone],
        "one process alone, ms": round(1e3 * alone["thread"]),
        "one process on every core, ms": round(1e3 * beside),
        "computing threads, ms": in_ms("thread"),
        "whole processes, ms": in_ms("process"),
        "wall, ms": max(in_ms("wall")),
        "bare exchange, threads and processes, ms": [
            [round(1e3 * found["bare"][clock]) for found in everyone]
            for clock in ("thread", "process")
        ],
        "efficiency of the computing threads": efficiency("thread", beside),
        "efficiency of whole processes": efficiency("process", beside),
        "the same against one process alone": [
            efficiency(c, alone[c]) for c in ("thread", "process")
        ],
    }
    print(json.dumps(report))
    for case in CASES:
        of_case = [found["cases"][case] for found in everyone]
        one = rounds(step_of(case, graph, features), count)["thread"]
        print(
            f"  {case}: {max(found['bytes'] for found in of_case) / 1e6:.1f} MB, computing thread "
            f"{max(found['thread'] for found in of_case) * 1e3:.0f} ms, whole process "
            f"{max(found['process'] for found in of_case) * 1e3:.0f} ms, with a new plan "
            f"{max(found['planned'] for found in of_case) * 1e3:.0f} ms; one process {one * 1e3:.0f} ms"
        )


def main() -> None:
    """Read the command line, and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--edges", type=int, default=2_000_000)
    parser.add_argument("--parts", type=int, nargs="*", default=[2, 4])
    parser.add_argument("--methods", nargs="*", default=["metis", "range"])
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    assert Processes.of(None).size == 1
    graph = community_graph(options.nodes, options.edges)
    print(graph, f"K = {len(DAG.nodes) - 1}, d = {RANK}, F = {FEATURES}")
    features = torch.randn(graph.num_nodes, FEATURES, generator=torch.Generator().manual_seed(2))
    one_part(graph, features)
    for parts in options.parts:
        for method in options.methods:
            several(graph, features, parts, method, options.rounds)


if __name__ == "__main__":
    main()
