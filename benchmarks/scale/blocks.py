"""Blocks and files of graphs: what they cost beside a training step, at the sizes of known graphs."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.timing import measure
from tensus_tn import Block, Dag, NeighborBlocks, RelationGraph
from tensus_tn.nn import MetaGraphNet
from tensus_tn.propagation.assembly import GraphOptions
from tensus_tn.propagation.memory import memory_of

#: Node types with their sizes, edge types with theirs; reverse edges are added.
SHAPES = {
    "dblp": (
        {"author": 4057, "paper": 14328, "conference": 20},
        {("author", "writes", "paper"): 19645, ("paper", "in", "conference"): 14328},
        "author",
    ),
    "ogbn-mag": (
        {"paper": 736389, "author": 1134649, "institution": 8740, "field": 59965},
        {
            ("author", "affiliated", "institution"): 1043998,
            ("author", "writes", "paper"): 7145660,
            ("paper", "cites", "paper"): 5416271,
            ("paper", "topic", "field"): 7505078,
        },
        "paper",
    ),
}
#: Name of a shape, steps, fan-outs, seeds in a block.
CASES = [
    ("dblp", 4, [-1] * 4, 256),
    ("dblp", 4, [5] * 4, 256),
    ("ogbn-mag", 2, [10, 10], 512),
    ("ogbn-mag", 2, [25, 10], 1024),
]
FEATURES = 64


def random_edges(shape: str) -> dict[tuple[str, str, str], torch.Tensor]:
    """Edges of these sizes, some of them twice, and their reverse."""
    counts, edges, _ = SHAPES[shape]
    generator = torch.Generator().manual_seed(0)
    lists = {}
    for (source, name, target), size in edges.items():
        ends = [
            torch.randint(counts[kind], (size,), generator=generator) for kind in (source, target)
        ]
        lists[source, name, target] = torch.stack(ends)
        lists[target, f"rev_{name}", source] = torch.stack(ends[::-1])
    return lists


def random_graph(shape: str) -> RelationGraph:
    """A graph of these sizes, means over the neighbours."""
    return RelationGraph.from_edge_index(
        random_edges(shape), SHAPES[shape][0], normalize="row", identity=True, zero=True
    )


def files(graph: RelationGraph, path: Path) -> dict[str, float]:
    """Seconds to write a graph, to map it, and to read and verify it."""
    times = {}
    for name, action in {
        "save": lambda: graph.save(path),
        "map": lambda: RelationGraph.load(path, mmap=True),
        "map and verify": lambda: RelationGraph.load(path, mmap=True, verify=True),
        "read": lambda: RelationGraph.load(path),
    }.items():
        start = time.perf_counter()
        action()
        times[name] = time.perf_counter() - start
    return times


def blocks(graph: RelationGraph, case: tuple[str, int, list[int], int], seconds: float) -> str:
    """A row of the table: a block, its features, and a step of the network on it, on one thread."""
    shape, steps, fan_out, size = case
    counts, _, target = SHAPES[shape]
    x = {kind: torch.empty(count, FEATURES).uniform_() for kind, count in counts.items()}
    metadata = (list(counts), [tuple(n.split("__")) for n in graph.relation_names[:-2]])
    net = MetaGraphNet(FEATURES, FEATURES, 16, metadata, target, dag=Dag.path(steps), rank=2)
    source = NeighborBlocks(graph, target, fan_out, size, shuffle=True)
    labels = torch.randint(16, (size,))
    jobs = _jobs(source)
    block = source.sample(*next(jobs))
    features = block.gather(x)

    def step() -> None:
        net.zero_grad()
        scores = net(features, block.graph, rows=block.rows_of(target))
        F.cross_entropy(scores, labels).backward()

    times = measure(
        {
            "sample": lambda: source.sample(*next(jobs)),
            "gather": lambda: block.gather(x),
            "step": step,
        },
        seconds=seconds,
    )
    ms = {name: 1e3 * timing.median for name, timing in times.items()}
    name = ",".join(map(str, fan_out))
    return (
        f"| {shape} | {steps} | {name} | {size} | {len(block.nodes):,} | {block.graph.num_edges:,} "
        f"| {ms['sample']:.1f} | {ms['gather']:.1f} | {ms['step']:.1f} "
        f"| {ms['sample'] / ms['step']:.2f} |"
    )


def loader(case: tuple[str, int, list[int], int], seconds: float) -> str:
    """A row of the other table: blocks, and batches of PyG's loader made into such, on one thread."""
    from torch_geometric.data import HeteroData
    from torch_geometric.loader import NeighborLoader

    shape, _, fan_out, size = case
    counts, _, target = SHAPES[shape]
    edges, data = random_edges(shape), HeteroData()
    for kind, count in counts.items():
        data[kind].num_nodes = count
    for kind, index in edges.items():
        data[kind].edge_index = index
    options: GraphOptions = {"normalize": "row", "identity": True, "zero": True}
    source = NeighborBlocks(
        RelationGraph.from_edge_index(edges, counts, **options), target, fan_out, size, shuffle=True
    )
    batches = NeighborLoader(data, fan_out, batch_size=size, input_nodes=target, shuffle=True)
    jobs = _jobs(source)
    block = source.sample(*next(jobs))

    def batch() -> Any:
        return batches(next(jobs)[0] - source.seeds[0])

    made = Block.from_hetero_data(batch(), counts, **options)
    times = measure(
        {
            "ours": lambda: source.sample(*next(jobs)),
            "batch": batch,
            "block": lambda: Block.from_hetero_data(batch(), counts, **options),
        },
        seconds=seconds,
    )
    ms = {name: 1e3 * timing.median for name, timing in times.items()}
    name = ",".join(map(str, fan_out))
    return (
        f"| {shape} | {name} | {size} | {block.graph.num_edges:,} | {made.graph.num_edges:,} "
        f"| {ms['ours']:.1f} | {ms['batch']:.1f} | {ms['block']:.1f} "
        f"| {ms['block'] / ms['ours']:.1f} |"
    )


def _jobs(blocks: NeighborBlocks) -> Iterator[tuple[torch.Tensor, int]]:
    """Seeds of ever new batches."""
    for number in range(10**9):
        order = torch.randperm(len(blocks.seeds))[: blocks.batch_size]
        yield blocks.seeds[order], number


def sizes() -> str:
    """What large graphs take, K = 2, d = 2, F = 64, in GB: on one machine, and on each of 8."""
    graphs = {
        "ogbn-mag": (1_939_743, 42_222_014),
        "MAG240M": (244_160_499, 3_456_728_464),
    }
    lines = []
    for name, (nodes, edges) in graphs.items():
        for machines, halo in ((1, 0), (8, 0), (8, nodes - nodes // 8)):
            memory = memory_of(
                Dag.path(2), 2, 64, nodes=nodes, edges=edges, machines=machines, halo=halo
            )
            cells = [f"{size / 1e9:.1f}" for size in (memory.forward, memory.training)]
            edges_gb = sum(memory.parts[p] for p in ("edges, forward", "edges, transposed")) / 1e9
            halo_gb = memory.parts.get("halo", 0) / 1e9
            lines.append(
                f"| {name} | {nodes:,} | {edges:,} | {machines} | {halo_gb:.1f} | {edges_gb:.1f} "
                f"| {' | '.join(cells)} |"
            )
    return "\n".join(lines)


def main(seconds: float) -> None:
    """Print all tables; the graph of ogbn-mag's size takes some 10 GB while it is built."""
    torch.set_num_threads(1)
    print(sizes())
    for shape in SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "graph.npz"
            print(shape, files(random_graph(shape), path))
            graph = RelationGraph.load(path, mmap=True)
            for case in CASES:
                if case[0] == shape:
                    print(blocks(graph, case, seconds))
    if find_spec("torch_sparse") or find_spec("pyg_lib"):  # one of which PyG's loader needs
        print(*(loader(case, seconds) for case in CASES), sep="\n")


if __name__ == "__main__":
    main(8.0)
