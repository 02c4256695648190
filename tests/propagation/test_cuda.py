"""propagate on a GPU, against the CPU: `pytest -m cuda`. Skipped where there is none.

The kernels themselves are tested without a GPU in tests/csrc/test_cuda_kernels.py.
"""

import pytest
import torch

from tensus_tn import Dag, propagate_dag
from tensus_tn.propagation import extension
from tests.propagation.problems import (
    GRAPHS,
    random_graph,
    random_state,
    random_weights,
    sum_dtype,
)

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
    pytest.mark.skipif(
        extension._C is None or not extension._C.cuda_architectures(),
        reason="built without CUDA kernels",
    ),
]

TOLERANCE = {
    torch.float64: 1e-11,
    torch.float32: 2e-5,
    torch.bfloat16: 2e-2,
    torch.float16: 3e-3,
}
RANKS = [(1, 1, 1, 1), (2, 1, 3, 2), (1, 9, 20, 1)]


def problem(kind, rank, features, dtype, nodes=300, edges=4000):
    """A graph with a hub, a DAG, its source state and weights, all on the CPU."""
    graph = random_graph(nodes, edges, dtype=sum_dtype(dtype), seed=1, **GRAPHS[kind])
    dag = Dag.complete(3)
    weights = {
        (j, k): random_weights(graph, rank[j], rank[k], 3 * j + k, sum_dtype(dtype)) / 4
        for j, k in dag.edges
    }
    return graph, dag, random_state(nodes, rank[0], features, dtype), weights


def run(graph, dag, h, weights, device):
    """All states, and the gradients of h, of the edge values and of the weights."""
    graph = graph.to(device)
    values = graph.values().clone().requires_grad_()
    h = h.to(device).requires_grad_()
    weights = {edge: w.to(device).requires_grad_() for edge, w in weights.items()}
    states = propagate_dag(graph.with_values(values), dag, h, weights, return_states=True)
    grad = torch.ones_like(states[dag.sink])
    return [
        *states.values(),
        *torch.autograd.grad(states[dag.sink], [h, values, *weights.values()], grad),
    ]


@pytest.mark.parametrize("features", [1, 33, 64, 256])
@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("kind", list(GRAPHS))
@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_as_on_the_cpu(dtype, kind, rank, features):
    graph, dag, h, weights = problem(kind, rank, features, dtype)
    reference = h.float() if dtype == torch.float16 else h
    for a, b in zip(
        run(graph, dag, h, weights, "cuda"), run(graph, dag, reference, weights, "cpu"), strict=True
    ):
        error = (a.cpu().double() - b.double()).abs().max()
        assert error <= TOLERANCE[dtype] * b.double().abs().max().clamp_min(1e-30)


def test_same_bits_every_time():
    arguments = problem("as in DiffMG", (2, 4, 4, 2), 64, torch.float32, 3000, 60_000)
    first = run(*arguments, "cuda")
    for _ in range(3):
        assert all(map(torch.equal, first, run(*arguments, "cuda")))


def test_nothing_to_do():
    graph, dag, h, weights = problem("plain", (1, 1, 1, 1), 0, torch.float32)
    assert run(graph, dag, h, weights, "cuda")[0].numel() == 0


@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_rows_are_those_of_the_whole_sink(dtype):
    graph, dag, h, weights = problem("as in DiffMG", (2, 1, 3, 2), 64, dtype)
    graph, h, wanted = graph.to("cuda"), h.cuda().requires_grad_(), torch.tensor([7, 299, 7])
    weights = {edge: w.cuda().requires_grad_() for edge, w in weights.items()}
    results = []
    for rows in (None, wanted):
        sink = propagate_dag(graph, dag, h, weights, rows=rows)
        sink = sink[wanted.cuda()] if rows is None else sink
        results.append([sink, *torch.autograd.grad(sink.sum(), [h, *weights.values()])])
    assert all(map(torch.equal, *results))


def test_stream_of_the_caller():
    graph, dag, h, weights = problem("as in DiffMG", (2, 2, 2, 2), 64, torch.float32)
    want = run(graph, dag, h, weights, "cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        got = run(graph, dag, h, weights, "cuda")
    stream.synchronize()
    assert all(map(torch.equal, want, got))


def test_captured_in_a_cuda_graph():
    graph, dag, h, weights = problem("as in DiffMG", (2, 4, 4, 2), 64, torch.float32)
    graph, h = graph.to("cuda"), h.cuda()
    weights = {edge: w.cuda() for edge, w in weights.items()}
    propagate_dag(graph, dag, h, weights)  # loads the kernels
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        out = propagate_dag(graph, dag, h, weights)
    for scale in (1.0, -2.0):
        h.mul_(scale)
        captured.replay()
        assert torch.equal(out, propagate_dag(graph, dag, h, weights))


def test_backward_captured_in_a_cuda_graph():
    graph, dag, h, weights = problem("as in DiffMG", (2, 4, 4, 2), 64, torch.float32)
    graph, h = graph.to("cuda"), h.cuda().requires_grad_()
    weights = {edge: w.cuda().requires_grad_() for edge, w in weights.items()}

    def step():
        sink = propagate_dag(graph, dag, h, weights)
        return [sink, *torch.autograd.grad(sink.square().sum(), [h, *weights.values()])]

    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):  # loads the kernels, and makes what autograd keeps
        step()
    torch.cuda.current_stream().wait_stream(aside)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        found = step()
    for scale in (1.0, -2.0):
        with torch.no_grad():
            h.mul_(scale)
        captured.replay()
        assert all(map(torch.equal, found, step()))


def test_rows_are_ordered_once():
    graph, *_ = problem("plain", (1, 1, 1, 1), 4, torch.float32)
    here = graph.to("cuda")
    assert here.forward.short_rows is not None
    assert here.to(torch.float64).forward.short_rows is here.forward.short_rows


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_device_of_the_tensors():
    graph, dag, h, weights = problem("as in DiffMG", (2, 2, 2, 2), 64, torch.float32)
    with torch.cuda.device(0):
        on_second = run(graph, dag, h, weights, "cuda:1")
    want = run(graph, dag, h, weights, "cuda:0")
    assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(on_second, want, strict=True))
