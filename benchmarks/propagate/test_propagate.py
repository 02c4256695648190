"""The same comparison for pytest-benchmark: `pytest benchmarks/propagate --benchmark-enable`."""

import pytest
import torch

from benchmarks.propagate import graphs, measure, peers
from tensus_tn.dag import Dag

GRAPHS = [*graphs.available(), "small"]


@pytest.fixture(scope="module", params=GRAPHS)
def problem(request):
    return graphs.load(request.param)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("way", ["forward", "both"])
@pytest.mark.parametrize("peer", [None, *peers.PEERS], ids=lambda p: p.title if p else peers.OURS)
def test_whole_dag(benchmark, problem, peer, way):
    dag = Dag.complete(4)
    try:
        run = peers.make_run(peer, problem, dag)
    except peers.UnsupportedError as reason:
        pytest.skip(str(reason))
    h, weights, grad = measure.inputs(problem, dag, 2, 64)
    benchmark.group = f"{problem.name}, {way}"
    if way == "both":
        benchmark(measure.results, run, h, weights, grad)
    else:
        with torch.no_grad():
            benchmark(run, h, weights)
