"""The traffic model adds up, and the CUDA benchmark's command works (on the CPU)."""

import argparse
import math

import pytest
import torch

from benchmarks.cuda import __main__ as command
from benchmarks.cuda import traffic
from benchmarks.propagate import graphs
from tensus_tn import Dag


@pytest.fixture(scope="module")
def tiny():
    return graphs.load("tiny")


def test_passes_are_those_of_the_operators():
    rank = {0: 1, 1: 2, 2: 3}
    forward = [traffic.Pass(1, 5, 0), traffic.Pass(2, 3, 3)]
    assert list(traffic.passes(Dag.complete(2), rank, backward=False)) == forward
    backward = [traffic.Pass(3, 3, 0, True), traffic.Pass(2, 1, 1, True)]
    assert list(traffic.passes(Dag.complete(2), rank, backward=True)) == backward


def test_bytes_of_a_pass(tiny):
    """By hand: a pass from rank 2 to one column of F = 4."""
    graph, s = tiny.graph, tiny.graph.forward
    least = traffic.least(graph, s, traffic.Pass(2, 1, 0), 4)
    pointers = graph.num_nodes + 1 + s.num_segments * 2 + 1 + s.num_edges
    values = s.num_segments * 2  # one value and one self-loop each: rows are normalised
    written = graph.num_nodes * 4
    rows, row = graph.num_nodes, 2 * 4
    assert least.bytes(math.inf) == 4 * (pointers + values + written + rows * row)
    assert least.bytes(0) == 4 * (pointers + values + written + (s.num_edges + rows) * row)


def test_never_below_the_bound(tiny):
    graph = tiny.graph
    for backward in (False, True):
        s = graph.backward if backward else graph.forward
        for one in traffic.passes(Dag.complete(4), {0: 1, 1: 4, 2: 4, 3: 9, 4: 1}, backward):
            ours, bound = (f(graph, s, one, 64) for f in (traffic.ours, traffic.least))
            for cache in (0, 1e4, math.inf):
                assert bound.bytes(cache) <= ours.bytes(cache)
                assert ours.bytes(math.inf) <= ours.bytes(cache) <= ours.bytes(0)
            assert ours.launches >= 1 + one.weights


def test_page(tiny):
    text = traffic.section(tiny, 4, 2, 64)
    assert "forward, 1 -> 7" in text
    assert "backward, H100" in text


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_command_on_the_cpu():
    options = argparse.Namespace(device="cpu", steps=2, rank=2, features=8, rounds=2)
    table = command.case("tiny", options)
    for title in ("tensus_tn", "CSR stacked", "COO per relation", "embedding_bag mix first"):
        assert title in table


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_command_says_that_there_is_no_gpu(monkeypatch):
    monkeypatch.setattr("sys.argv", ["benchmarks.cuda"])
    with pytest.raises(SystemExit, match="no GPU here"):
        command.main()
