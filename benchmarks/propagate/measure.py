"""One case (graph, DAG, rank, width): every peer is checked, then timed beside this library."""

import ctypes
import gc
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from statistics import median
from typing import Any

import torch
from torch import Tensor

from benchmarks.propagate import roof
from benchmarks.propagate.graphs import Problem
from benchmarks.propagate.peers import (
    OURS,
    Peer,
    UnsupportedError,
    Weights,
    make_run,
    run_dag,
    scipy_engine,
    stacked,
)
from benchmarks.timing import Timing, measure
from tensus_tn.dag import Dag

ROUNDS = {"least_rounds": 3, "most_rounds": 25}
SLOW = 2.0  # seconds: what takes longer is timed once, without rounds
# Of float32 results, relative to the largest entry of the float64 ones (dw sums N F terms).
TOLERANCE = 1e-4


def inputs(
    problem: Problem, dag: Dag, rank: int, features: int, ends: int | None = None
) -> tuple[Tensor, Weights, Tensor]:
    """A state, weights that sum to 1 over the relations and tails, and a gradient of the result.

    All states have this rank, but source and sink that of `ends` where it is given.
    """
    generator = torch.Generator().manual_seed(0)
    ranks = dict.fromkeys(dag.nodes, rank)
    if ends is not None:
        ranks[dag.source] = ranks[dag.sink] = ends
    h, grad = (
        torch.randn(problem.graph.num_nodes, ranks[end], features, generator=generator)
        for end in (dag.source, dag.sink)
    )
    weights = {}
    for tail, head in dag.edges:
        size = (problem.graph.num_relations, ranks[tail], ranks[head])
        scores = torch.randn(size, generator=generator)
        weights[tail, head] = (scores.softmax(0) / ranks[tail]).requires_grad_()
    return h.requires_grad_(), weights, grad


def results(run: Callable, h: Tensor, weights: Weights, grad: Tensor) -> dict[str, Tensor]:
    """The sink's state and the gradients of h and of all weights."""
    y = run(h, weights)
    dh, *dw = torch.autograd.grad(y, [h, *weights.values()], grad)
    return {"y": y.detach(), "dh": dh, "dw": torch.cat([w.flatten() for w in dw])}


def expected(problem: Problem, dag: Dag, h: Tensor, weights: Weights, grad: Tensor):
    """The same in float64 by scipy, as the judge of all."""
    step = stacked(scipy_engine)(problem)
    doubles = {e: w.detach().double().requires_grad_() for e, w in weights.items()}
    h = h.detach().double().requires_grad_()
    return results(lambda h, w: run_dag(dag, "tail", step, h, w), h, doubles, grad.double())


def errors(actual: dict[str, Tensor], right: dict[str, Tensor]) -> dict[str, float]:
    return {
        key: float((actual[key] - right[key]).abs().max() / right[key].abs().max()) for key in right
    }


def run_case(
    problem: Problem,
    peers: Iterable[Peer],
    *,
    steps: int = 4,
    rank: int = 2,
    features: int = 64,
    ends: int | None = None,
    seconds: float = 2.0,
    save: Callable[[dict[str, Any]], None] = lambda case: None,
) -> dict[str, Any]:
    """Time every peer in turn with this library: forward, and forward and backward.

    `steps` is K of a complete DAG; 1 is a single propagate. Source and sink have rank `ends`, or
    `rank` like the others. `save` gets the case after every peer.
    """
    gc.freeze()  # what lives now needs no visit of the collector between rounds
    dag = Dag.complete(steps)
    h, weights, grad = inputs(problem, dag, rank, features, ends)
    right = expected(problem, dag, h, weights, grad)
    graph = problem.graph
    case: dict[str, Any] = {
        "graph": problem.name,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "relations": graph.num_relations,
        "segments": graph.num_segments,
        "dag": f"complete, K = {steps}, {len(dag.edges)} edges",
        "rank": rank,
        "features": features,
        "threads": torch.get_num_threads(),
        "peers": {},
    }
    ours = make_run(None, problem, dag)
    case["peers"][OURS] = {
        "library": OURS,
        "errors": _checked(OURS, ours, h, weights, grad, right),
        **memory(ours, h, weights, grad),
    }
    if ends is None:
        case["traffic"] = roof.traffic(problem, dag, rank, features)
        case |= _roofs(problem, dag, rank, features, ours, h, weights, grad, seconds)
    for peer in peers:
        try:
            run = make_run(peer, problem, dag)
        except UnsupportedError as reason:
            case["peers"][peer.title] = {"library": peer.library, "absent": str(reason)}
            continue
        row = {
            "library": peer.library,
            "errors": _checked(peer.title, run, h, weights, grad, right),
            **memory(run, h, weights, grad),
            **_pair(ours, run, h, weights, grad, seconds),
        }
        case["peers"][peer.title] = row
        summarise_ours(case)
        print(
            f"{problem.name:>20}  {peer.title:50}",
            *(f"{row[way]['ratio']:8.1f} x" for way in ("forward", "both")),
        )
        save(case)
    return case


def _roofs(
    problem, dag, rank, features, ours, h, weights, grad, seconds
) -> dict[str, dict[str, Any]]:
    """Our own time beside that of loops which only move the data: forward, and backward alone."""
    forward = {OURS: lambda: ours(h, weights)}
    y = ours(h, weights)
    backward = {
        OURS: lambda: torch.autograd.grad(y, [h, *weights.values()], grad, retain_graph=True)
    }
    found = {}
    for name, call in (("roof", forward), ("roof_backward", backward)):
        moving = roof.loops(problem, dag, rank, features, backward=call is backward)
        if moving:
            with torch.set_grad_enabled(call is backward):
                times = measure({**call, **moving}, seconds=seconds, **ROUNDS)
            found[name] = {name: asdict(timing) for name, timing in times.items()}
    return found


def _checked(title, run, h, weights, grad, right) -> dict[str, float]:
    found = errors(results(run, h, weights, grad), right)
    if not max(found.values()) < TOLERANCE:
        raise AssertionError(f"{title} computes something else: relative errors {found}")
    return found


def _pair(ours, run, h, weights, grad, seconds) -> dict[str, Any]:
    """Both ways of both, interleaved, and the ratios of the medians."""
    out = {}
    for way in ("forward", "both"):
        calls = {
            name: (lambda f=f: _forward(f, h, weights))
            if way == "forward"
            else (lambda f=f: results(f, h, weights, grad))
            for name, f in (("ours", ours), ("peer", run))
        }
        first = {name: _once(call) for name, call in calls.items()}  # warm: both were checked
        slow = first["peer"].median > SLOW
        times = first if slow else measure(calls, seconds=seconds, **ROUNDS)
        out[way] = {
            **asdict(times["peer"]),
            "ours": asdict(times["ours"]),
            "ratio": times["peer"].median / times["ours"].median,
        }
    return out


def _once(call: Callable[[], object]) -> Timing:
    start = time.perf_counter()
    call()
    seconds = time.perf_counter() - start
    return Timing(seconds, seconds, seconds, 1)


def _forward(run, h, weights) -> Tensor:
    with torch.no_grad():
        return run(h, weights)


def summarise_ours(case: dict[str, Any]) -> None:
    """Our own time: the median over the pairs, with the extremes of their quartiles."""
    rows = [row for title, row in case["peers"].items() if title != OURS and "forward" in row]
    for way in ("forward", "both") if rows else ():
        mine = [row[way]["ours"] for row in rows]
        case["peers"][OURS][way] = {
            "median": median(t["median"] for t in mine),
            "low": median(t["low"] for t in mine),
            "high": median(t["high"] for t in mine),
            "rounds": sum(t["rounds"] for t in mine),
            "ratio": 1.0,
        }


def memory(run, h: Tensor, weights: Weights, grad: Tensor) -> dict[str, float | None]:
    """MB saved for backward, and the rise of the resident memory in forward and backward."""
    saved: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.is_floating_point() and tensor.layout == torch.strided:  # not the graph itself
            storage = tensor.untyped_storage()
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = run(h, weights)
    for given in (h, *weights.values()):
        saved.pop(given.untyped_storage().data_ptr(), None)
    del y
    before = _reset_peak()
    results(run, h, weights, grad)
    peak = None if before is None else (_status("VmHWM") - before) / 1e6
    return {"saved_mb": sum(saved.values()) / 1e6, "peak_mb": peak}


def _reset_peak() -> float | None:
    """Give freed memory back, restart the count of the peak (Linux), and say where it stands."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        return _status("VmRSS")
    except (OSError, AttributeError):
        return None


def _status(key: str) -> float:
    with open("/proc/self/status") as lines:
        return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith(key))
