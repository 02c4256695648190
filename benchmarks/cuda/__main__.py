"""One command on a machine with a GPU: times this library's CUDA kernels and its peers.

    python -m benchmarks.cuda                    all graphs at hand; prints tables
    python -m benchmarks.cuda --device cpu       to see that it works where there is no GPU

Every peer's result and gradients are compared with this library's on the CPU before it is timed.
Rounds are interleaved, by CUDA events; shown are medians, half the distance of the quartiles, and
the bandwidth that the bytes of the traffic model (benchmarks/cuda/traffic.py) amount to.
"""

import argparse
import time
from collections.abc import Callable
from importlib.util import find_spec
from statistics import median, quantiles

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from benchmarks.cuda import traffic
from benchmarks.propagate import graphs, peers
from benchmarks.propagate.measure import inputs
from benchmarks.propagate.peers import Peer, Product, run_dag
from benchmarks.propagate.report import _markdown as markdown
from tensus_tn import Dag, propagate_dag, show_config
from tensus_tn.propagation import extension

OURS = "tensus_tn"
Run = Callable[[Tensor, dict], Tensor]
Engine = Callable[[sp.csr_array], Product]


def contenders(device: str) -> list[Peer]:
    """cuSPARSE through torch.sparse, PyG and DGL, each in the forms that may be its best."""

    def on_device(matrix: sp.csr_array) -> tuple[Tensor, Tensor, Tensor]:
        matrix.sort_indices()
        parts = (matrix.indptr.astype(np.int32), matrix.indices.astype(np.int32), matrix.data)
        return tuple(torch.from_numpy(part).to(device) for part in parts)

    @peers._differentiable
    def csr(matrix: sp.csr_array) -> Product:
        stored = torch.sparse_csr_tensor(*on_device(matrix), matrix.shape, check_invariants=True)
        return lambda x: stored @ x

    @peers._differentiable
    def coo(matrix: sp.csr_array) -> Product:
        stored = peers._coo(matrix).to(device)
        return lambda x: torch.sparse.mm(stored, x)

    @peers._differentiable
    def bag(matrix: sp.csr_array) -> Product:
        ptr, col, value = on_device(matrix)
        return lambda x: torch.nn.functional.embedding_bag(
            col, x, ptr, mode="sum", per_sample_weights=value, include_last_offset=True
        )

    @peers._differentiable
    def pyg(matrix: sp.csr_array) -> Product:
        from torch_geometric.utils import scatter

        entries = matrix.tocoo()
        row, col = (torch.from_numpy(i.astype(np.int64)).to(device) for i in entries.coords)
        value = torch.from_numpy(entries.data).to(device)[:, None]
        return lambda x: scatter(x[col] * value, row, 0, matrix.shape[0], reduce="sum")

    def dgl(matrix: sp.csr_array) -> Product:
        import dgl

        entries = matrix.tocoo()
        row, col = (torch.from_numpy(i.astype(np.int64)).to(device) for i in entries.coords)
        counts = {"from": matrix.shape[1], "to": matrix.shape[0]}
        graph = dgl.heterograph({("from", "edge", "to"): (col, row)}, counts, device=device)
        graph.create_formats_()
        value = torch.from_numpy(entries.data).to(device)[:, None]
        return lambda x: dgl.ops.u_mul_e_sum(graph, x, value)

    libraries: dict[str, tuple[str, Engine]] = {
        "CSR": ("cuSPARSE by torch.sparse", csr),
        "COO": ("cuSPARSE by torch.sparse", coo),
        "embedding_bag": ("torch", bag),
    }
    if find_spec("torch_geometric"):
        libraries["scatter"] = ("PyG", pyg)
    if find_spec("dgl"):
        libraries["u_mul_e_sum"] = ("DGL", dgl)
    found = []
    for name, (library, engine) in libraries.items():
        for form in (peers.stacked, peers.per_relation):
            title = f"{name} {form.__name__.replace('_', ' ')}"
            found.append(Peer(title, library, form(engine)))
        found.append(Peer(f"{name} mix first", library, peers.mix_first(engine), "head"))
    found.append(Peer("CSR stacked, a product a DAG edge", "cuSPARSE", peers.stacked(csr), "edge"))
    return found


def results(run: Run, h: Tensor, weights: dict, grad: Tensor) -> list[Tensor]:
    y = run(h, weights)
    return [y, *torch.autograd.grad(y, [h, *weights.values()], grad)]


def timed(
    calls: dict[str, Callable[[], object]], device: str, rounds: int
) -> dict[str, list[float]]:
    """Seconds of every call, in turn."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 3):
        for name, call in calls.items():
            if device == "cpu":
                start = time.perf_counter()
                call()
                seconds = time.perf_counter() - start
            else:
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                torch.cuda.synchronize()
                begin.record()
                call()
                end.record()
                torch.cuda.synchronize()
                seconds = begin.elapsed_time(end) / 1e3
            if turn >= 3:  # the first ones warm up
                times[name].append(seconds)
    return times


def captured(run: Run, h: Tensor, weights: dict) -> Callable[[], object]:
    """The forward pass as a CUDA graph: what is left when no launch is waited for."""
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        run(h, weights)
    return graph.replay


def model(problem: graphs.Problem, dag: Dag, rank: int, features: int, backward: bool):
    graph = problem.graph
    s = graph.backward if backward else graph.forward
    ranks = dict.fromkeys(dag.nodes, rank)
    total = traffic.Traffic()
    for one in traffic.passes(dag, ranks, backward):
        total += traffic.ours(graph, s, one, features)
    return total


def case(name: str, options: argparse.Namespace) -> str:
    device, problem, dag = options.device, graphs.load(name), Dag.complete(options.steps)
    h, weights, grad = inputs(problem, dag, options.rank, options.features)
    right = results(lambda h, w: propagate_dag(problem.graph, dag, h, w), h, weights, grad)
    h = h.detach().to(device).requires_grad_()
    weights = {e: w.detach().to(device).requires_grad_() for e, w in weights.items()}
    grad, graph = grad.to(device), problem.graph.to(device)

    runs: dict[str, tuple[str, Run]] = {
        OURS: (OURS, lambda h, w: propagate_dag(graph, dag, h, w)),
    }
    for peer in contenders(device):
        step = peer.make(problem)
        runs[peer.title] = (
            peer.library,
            lambda h, w, peer=peer, step=step: run_dag(dag, peer.order, step, h, w),
        )
    for title, (_, run) in runs.items():
        for got, want in zip(results(run, h, weights, grad), right, strict=True):
            error = (got.cpu() - want).abs().max() / want.abs().max()
            if not error < 1e-3:
                raise SystemExit(f"{title} on {name} is wrong: relative error {error:.1e}")

    with torch.no_grad():
        calls = {title: lambda run=run: run(h, weights) for title, (_, run) in runs.items()}
        if device != "cpu":
            calls[f"{OURS}, CUDA graph"] = captured(runs[OURS][1], h, weights)
        forward = timed(calls, device, options.rounds)
    calls = {
        title: lambda run=run: results(run, h, weights, grad) for title, (_, run) in runs.items()
    }
    both = timed(calls, device, options.rounds)

    cache = 0 if device == "cpu" else torch.cuda.get_device_properties(device).L2_cache_size
    sizes = [model(problem, dag, options.rank, options.features, way) for way in (False, True)]
    there, back = (size.bytes(cache) for size in sizes)
    table = []
    for title in forward:
        row = [runs[title][0] if title in runs else OURS, title, _time(forward[title])]
        row.append(_ratio(forward, title))
        row += [_time(both[title]), _ratio(both, title)] if title in both else ["", ""]
        moved = [(there, forward), (there + back, both)] if title.startswith(OURS) else []
        rates = [f"{b / median(t[title]) / 1e9:.0f}" for b, t in moved if title in t]
        table.append([*row, " / ".join(rates)])
    columns = ["library", "form", "forward", "", "forward + backward", "", "GB/s"]
    return (
        f"### {problem.name}, K = {options.steps}, d = {options.rank}, F = {options.features}\n\n"
        f"{markdown(columns, table)}\n"
    )


def _time(times: list[float]) -> str:
    low, _, high = quantiles(times, n=4)
    return f"{median(times) * 1e6:.0f} ± {(high - low) / 2 * 1e6:.0f} µs"


def _ratio(times: dict[str, list[float]], title: str) -> str:
    return f"{median(times[title]) / median(times[OURS]):.2f}x"


def peak_bandwidth(device: str) -> float | None:
    """Bytes a second by the card's memory clock and bus, where torch knows them."""
    properties = torch.cuda.get_device_properties(device)
    clock = getattr(properties, "memory_clock_rate", None)  # kHz, two transfers a cycle
    width = getattr(properties, "memory_bus_width", None)  # bits
    return 2e3 * clock * width / 8 if clock and width else None


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cuda", description=__doc__)
    parser.add_argument("--graphs", nargs="*", help="all that there are; on the CPU a tiny one")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=4, help="K of the complete DAG")
    parser.add_argument("--rank", type=int, default=2)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--rounds", type=int, help="50; on the CPU 3")
    options = parser.parse_args()
    on_cpu = options.device == "cpu"  # only shows that the command works, in less than a minute
    if options.graphs is None:
        options.graphs = ["tiny"] if on_cpu else [*graphs.available(), "dblp-shape"]
    options.rounds = options.rounds or (3 if on_cpu else 50)
    if not on_cpu:
        if not torch.cuda.is_available():
            raise SystemExit("there is no GPU here: --device cpu shows that the command works")
        if extension._C is None or not extension._C.cuda_architectures():
            raise SystemExit("tensus_tn was built without CUDA kernels: see docs/cuda.md")
        peak = peak_bandwidth(options.device)
        name = torch.cuda.get_device_name(options.device)
        print(f"{name}, peak bandwidth {f'{peak / 1e9:.0f} GB/s' if peak else 'unknown'}")
    show_config()
    print()
    for name in options.graphs:
        print(case(name, options), flush=True)


if __name__ == "__main__":
    main()
