"""From lists of edges to a graph: beside the forward pass of a layer, and in what memory."""

from __future__ import annotations

import os
import threading
import time

import torch

from benchmarks.scale.blocks import FEATURES, SHAPES, random_edges
from benchmarks.timing import measure
from tensus_tn import RelationGraph
from tensus_tn.nn import MetaGraphConv, set_graph_cache_size


def beside_a_layer(shape: str, seconds: float = 5) -> dict[str, float]:
    """Seconds of a conversion, and of the forward pass of a layer with its defaults."""
    counts, edges = SHAPES[shape][0], random_edges(shape)
    conv = MetaGraphConv(FEATURES, FEATURES, (list(counts), list(edges)))
    x = {kind: torch.randn(count, FEATURES) for kind, count in counts.items()}
    graph = conv.relation_graph(edges, counts)
    set_graph_cache_size(0)
    with torch.no_grad():
        times = measure(
            {
                "conversion": lambda: conv.relation_graph(edges, counts),
                "forward": lambda: conv(torch.cat(list(x.values())), graph),
            },
            seconds=seconds,
        )
    return {name: timing.median for name, timing in times.items()}


def distinct(edges: dict[tuple[str, str, str], torch.Tensor]) -> None:
    """Leave every edge once, in random order."""
    for kind, index in edges.items():
        size = int(index[1].max()) + 1
        key = (index[0] * size + index[1]).unique()
        key = key[torch.randperm(len(key))]
        edges[kind] = torch.stack([key // size, key % size])


def large(shape: str, once: bool) -> tuple[float, float]:
    """Seconds of a conversion, and the largest memory in between as a multiple of the result's."""
    edges = random_edges(shape)
    if once:
        distinct(edges)
    before = _memory()
    peak, done = [before], threading.Event()

    def watch() -> None:
        while not done.wait(0.002):
            peak[0] = max(peak[0], _memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    graph = RelationGraph.from_edge_index(
        edges, SHAPES[shape][0], normalize="row", self_loops=True, identity=True, zero=True
    )
    seconds = time.perf_counter() - start
    done.set()
    watcher.join()
    return seconds, (peak[0] - before) / (graph.forward.nbytes + graph.backward.nbytes)


def _memory() -> int:
    """The memory of this process, in bytes (Linux)."""
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    for name, seconds in beside_a_layer("dblp").items():
        print(f"dblp: {name} {1e3 * seconds:.1f} ms")
    for once in (False, True):
        seconds, memory = large("ogbn-mag", once)
        edges = "each once" if once else "some twice"
        print(
            f"ogbn-mag, edges {edges}: {seconds:.1f} s, {memory:.2f} times the memory of the result"
        )
