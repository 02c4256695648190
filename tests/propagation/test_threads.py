"""Any number of threads, several of them at once, child processes: always the same bits."""

import concurrent.futures
import multiprocessing
import warnings

import numpy as np
import pytest
import torch

from tensus_tn.propagation.functional import propagate_dag
from tests.propagation.problems import native, run_problem, sizable_problem


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@native
@pytest.mark.parametrize("rank", [(1, 2, 3, 1), (1, 9, 9, 1)], ids=["gathered", "mixed first"])
@pytest.mark.parametrize("names", [None, ["r0", "r2"], ["r1"]])
def test_same_bits_for_any_number_of_threads(threads, rank, names):
    *problem, grad = sizable_problem(rank)
    graph, dag, _, _ = problem
    graph = graph.with_values(graph.values())  # learned ones would be copied as well
    problem = graph, *problem[1:], grad, names and dict.fromkeys(dag.edges, names)
    results = []
    for count in (1, 2, 3, 8, 2):
        threads(count)
        results.append(run_problem(*problem))
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))


def test_several_python_threads_at_once():
    problem = sizable_problem()
    want = run_problem(*problem)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for got in pool.map(lambda _: run_problem(*problem), range(8)):
            assert all(map(torch.equal, want, got))


def in_child(connection, problem):
    # numpy takes the sums: torch's own loops would wait for threads that a fork left behind.
    connection.send([t.numpy().sum(dtype=np.float64) for t in run_problem(*problem)])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_child_processes(method):
    problem = sizable_problem()
    want = [t.numpy().sum(dtype=np.float64) for t in run_problem(*problem)]
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads, on purpose
        child = context.Process(target=in_child, args=(theirs, problem))
        child.start()
    try:
        assert ours.poll(600), "the child did not answer"
        assert ours.recv() == want
    finally:
        child.kill()
        child.join()


def test_memory_is_not_shared_between_live_results():
    graph, dag, h, weights, _ = sizable_problem()
    with torch.no_grad():
        first = propagate_dag(graph, dag, h, weights, return_states=True)
        kept = {node: state.clone() for node, state in first.items()}
        for scale in (2.0, 3.0):
            propagate_dag(graph, dag, h * scale, weights)
    assert all(torch.equal(first[node], kept[node]) for node in dag.nodes)
