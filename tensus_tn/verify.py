"""`tensus-tn verify`: are the kernels right on this machine, and how fast are they?

It builds nothing. Small graphs, degenerate ones among them, are propagated in every dtype and
compared, with all gradients, to dense matrices in float64; then larger ones are timed, one with a
hub among them. The report goes to the screen and to a file, to be pasted into an issue.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

from tensus_tn.dag import Dag, Edge
from tensus_tn.propagation.edge_lists import RelationKey
from tensus_tn.propagation.extension import show_config
from tensus_tn.propagation.functional import propagate_dag
from tensus_tn.propagation.relation_graph import RelationGraph

Weights = Mapping[Edge, Tensor]

TOLERANCE = {
    torch.float64: 1e-11,
    torch.float32: 5e-5,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
}


def verify(
    device: str | None = None, out: str = "tensus-tn-verify.md", *, nodes: int = 20_000
) -> bool:
    """Check and time the kernels of a device, print the report and write it to `out`.

    Args:
        device: CUDA where it is, if None, else the CPU.
        out: The file to write.
        nodes: Of the graphs that are timed.

    Returns:
        Whether everything was right.

    Example:
        >>> import os, tempfile
        >>> verify("cpu", os.path.join(tempfile.mkdtemp(), "report.md"), nodes=50)
        # tensus-tn verify, cpu...
        True
    """
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    wrong = 0
    with Path(out).open("w") as file:

        def say(line: str = "") -> None:
            print(line, flush=True)
            print(line, file=file, flush=True)

        say(f"# tensus-tn verify, {_name(where)}\n")
        say(f"```\n{_machine()}```\n\n## Right?\n")
        for title, dtype, error in _errors(where):
            right = error <= TOLERANCE[dtype]  # an error that is not a number is not right
            wrong += not right
            if not right:
                say(f"- **WRONG**: {title}, {_short(dtype)}: relative error {error:.1e}")
        say("Everything is right: all graphs, types and gradients." if not wrong else "")
        say("\n## Fast?\n")
        for line in _timings(where, nodes):
            say(line)
    print(f"\nwritten to {out}: please paste it into an issue")
    return not wrong


# ------------------------------------------------------------------------------------------ right?


def small_graphs() -> dict[str, RelationGraph]:
    """Graphs at the edges of what is allowed, and two ordinary ones, in float64."""
    generator = torch.Generator().manual_seed(0)

    def random(nodes: int, edges: int) -> Tensor:
        return torch.randint(nodes, (2, edges), generator=generator)

    none, hub = torch.empty(2, 0, dtype=torch.int64), random(40, 900)
    hub[1, :700] = 3
    types = {"a": 5, "none": 0, "b": 7}
    a_to_b = torch.stack([torch.arange(5), torch.arange(5) + 2])
    special = {"identity": True, "zero": True, "dtype": torch.float64}

    def graph(edges: Mapping[RelationKey, Tensor], nodes: int, **options: object) -> RelationGraph:
        return RelationGraph.from_edge_index(edges, nodes, **{**special, **options})  # type: ignore[arg-type]

    return {
        "no edges": graph({"A": none}, 4),
        "no nodes": graph({"A": none}, 0),
        "one node": graph({"A": torch.zeros(2, 1, dtype=torch.int64)}, 1, self_loops=True),
        "an empty node type": RelationGraph.from_edge_index(
            {("a", "to", "b"): a_to_b, ("none", "to", "a"): none},
            types,
            normalize="row",
            identity=True,
            dtype=torch.float64,
        ),
        "isolated nodes": graph({"A": random(6, 9), "B": none}, 30, normalize="row"),
        "two relations, row": graph(
            {"A": random(30, 90), "B": random(30, 60)}, 30, normalize="row"
        ),
        "self-loops, sym": graph({"A": random(30, 90)}, 30, normalize="sym", self_loops=True),
        "a hub": graph({"A": hub, "B": random(40, 80)}, 40, normalize="row", self_loops=True),
    }


def _errors(device: torch.device) -> Iterator[tuple[str, torch.dtype, float]]:
    """The relative error of every graph, rank, width and dtype."""
    for title, graph in small_graphs().items():
        for rank, features in ((1, 1), (2, 5), (3, 64)):
            for dtype in TOLERANCE:
                error = _error(graph, rank, features, dtype, device)
                yield f"{title}, rank {rank}, {features} features", dtype, error


def _error(
    graph: RelationGraph, rank: int, features: int, dtype: torch.dtype, device: torch.device
) -> float:
    dag = Dag.complete(3)
    ranks = {node: rank if node in dag.inner else 1 for node in dag.nodes}
    generator = torch.Generator().manual_seed(rank)

    def positive(*shape: int) -> Tensor:  # so that nothing cancels, and errors are those of sums
        return torch.rand(shape, dtype=torch.float64, generator=generator) + 0.1

    # Rounded to what the kernel is given, so that both sides have the same input.
    sums = torch.float64 if dtype == torch.float64 else torch.float32
    graph = graph.to(sums)
    h = positive(graph.num_nodes, 1, features).to(dtype)
    weights = {
        (j, k): positive(graph.num_relations, ranks[j], ranks[k]).to(sums) / 3 for j, k in dag.edges
    }
    grad = positive(graph.num_nodes, 1, features).to(dtype)
    expected = _results(
        _dense, graph.to(torch.float64), dag, h.double(), _double(weights), grad.double()
    )
    moved = {edge: w.to(device) for edge, w in weights.items()}
    got = _results(propagate_dag, graph.to(device), dag, h.to(device), moved, grad.to(device))
    return max(_distance(x.double().cpu(), y) for x, y in zip(got, expected, strict=True))


def _results(
    run: Callable[[RelationGraph, Dag, Tensor, Weights], Tensor],
    graph: RelationGraph,
    dag: Dag,
    h: Tensor,
    weights: Weights,
    grad: Tensor,
) -> list[Tensor]:
    """The sink's state, and the gradients of h, of the edge values and of the weights."""
    h, values = h.clone().requires_grad_(), graph.values().clone().requires_grad_()
    weights = {edge: w.clone().requires_grad_() for edge, w in weights.items()}
    y = run(graph.with_values(values), dag, h, weights)
    gradients = torch.autograd.grad(y, [h, values, *weights.values()], grad, allow_unused=True)
    return [y.detach(), *(torch.zeros(0) if g is None else g for g in gradients)]


def _dense(graph: RelationGraph, dag: Dag, h: Tensor, weights: Weights) -> Tensor:
    """`propagate_dag` by dense matrices (C, N, N)."""
    forward, n = graph.forward, graph.num_nodes
    segment = forward.edge_seg()
    place = (forward.seg_rel[segment].long(), forward.seg_row()[segment], forward.col.long())
    loops = graph.loop[:, None].repeat(1, n)
    loops[forward.seg_rel.long(), forward.seg_row()] = forward.loops(graph.loop)
    matrices = torch.diag_embed(loops).index_put(place, forward.values(h.dtype), accumulate=True)
    states = {dag.source: h}
    for node in dag.nodes[1:]:
        parts = [
            torch.einsum("inm,ipq,mpf->nqf", matrices, weights[j, k], states[j])
            for j, k in dag.edges
            if k == node
        ]
        states[node] = torch.stack(parts).sum(0)
    return states[dag.sink]


def _double(weights: Weights) -> Weights:
    return {edge: w.double() for edge, w in weights.items()}


def _distance(x: Tensor, y: Tensor) -> float:
    if y.numel() == 0:
        return 0.0
    return (
        float((x - y).abs().max() / y.abs().max().clamp_min(1e-30))
        if y.any()
        else float(x.abs().max())
    )


# ------------------------------------------------------------------------------------------ fast?


def _timings(device: torch.device, nodes: int) -> Iterator[str]:
    """A table: forward, and with the backward pass; bandwidth by what the edges gather."""
    dag, rank, features = Dag.complete(3), 2, 64
    yield f"Complete DAG with 3 steps, rank {rank}, {features} features; the median of 5, in ms."
    yield "GB/s counts, for the forward pass, what every edge of every pass gathers.\n"
    yield "| graph | dtype | forward | GB/s | forward and backward |"
    yield "|---|---|---|---|---|"
    dtypes = [torch.float32, torch.bfloat16]
    dtypes += [torch.float16] if device.type == "cuda" else []
    for title, graph in _large_graphs(nodes):
        graph = graph.to(device)
        for dtype in dtypes:
            h = torch.randn(nodes, rank, features, device=device).to(dtype).requires_grad_()
            weights = {
                edge: torch.randn(graph.num_relations, rank, rank, device=device).requires_grad_()
                for edge in dag.edges
            }
            forward = _seconds(_forward(graph, dag, h.detach(), weights), device)
            both = _seconds(_both(graph, dag, h, weights), device)
            passes = len(dag.nodes) - 1
            gathered = passes * graph.num_edges * (rank * features * h.element_size() + 4)
            yield (
                f"| {title} | {_short(dtype)} | {1e3 * forward:.3f} "
                f"| {gathered / forward / 1e9:.1f} | {1e3 * both:.3f} |"
            )


def _large_graphs(nodes: int) -> Iterator[tuple[str, RelationGraph]]:
    generator = torch.Generator().manual_seed(0)
    for title, into_hub in (("even", 0), ("with a hub", 2 * nodes)):
        edges: dict[RelationKey, Tensor] = {}
        for name in "ABC":
            edges[name] = torch.randint(nodes, (2, 4 * nodes), generator=generator)
            edges[name][1, :into_hub] = 7
        graph = RelationGraph.from_edge_index(
            edges, nodes, normalize="row", identity=True, zero=True, dtype=torch.float32
        )
        yield f"{title}, {graph.num_nodes} nodes, {graph.num_edges} edges", graph


def _forward(graph: RelationGraph, dag: Dag, h: Tensor, weights: Weights) -> Callable[[], object]:
    @torch.no_grad()
    def run() -> object:
        return propagate_dag(graph, dag, h, weights)

    return run


def _both(graph: RelationGraph, dag: Dag, h: Tensor, weights: Weights) -> Callable[[], object]:
    def run() -> object:
        y = propagate_dag(graph, dag, h, weights)
        return torch.autograd.grad(y, [h, *weights.values()], torch.ones_like(y))

    return run


def _seconds(run: Callable[[], object], device: torch.device, rounds: int = 5) -> float:
    """The median time of a call, after two that warm up; on a GPU by its own events."""
    times = []
    for turn in range(rounds + 2):
        seconds = _by_events(run) if device.type == "cuda" else _by_clock(run)
        if turn >= 2:
            times.append(seconds)
    return median(times)


def _by_clock(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _by_events(run: Callable[[], object]) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


# ------------------------------------------------------------------------------------------ where?


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


def _machine() -> str:
    text = StringIO()
    with redirect_stdout(text):
        show_config()
    lines = [f"{platform.platform()}, Python {platform.python_version()}, {_processor()}"]
    for k in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(k)
        lines.append(f"{gpu.name}, architecture {gpu.major}.{gpu.minor}, CUDA {torch.version.cuda}")
    return "\n".join(lines) + "\n" + text.getvalue()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def main() -> None:
    """The command line: `python -m tensus_tn.verify`."""
    from tensus_tn import cli

    sys.exit(cli.main(["verify", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
