"""The roof: how long the machine takes for the unavoidable traffic of a DAG, measured in C++."""

import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.propagate.graphs import Problem
from tensus_tn.dag import Dag


@functools.cache
def _library() -> ctypes.CDLL | None:
    """The loops of roof.cpp, compiled for this machine; None without a compiler."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        return None
    target = Path(tempfile.mkdtemp()) / "roof.so"
    source = Path(__file__).with_name("roof.cpp")
    flags = ["-O3", "-march=native", "-fopenmp", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, str(source), "-o", str(target)], check=True)
    library = ctypes.CDLL(str(target))
    library.gather.restype = ctypes.c_float
    return library


def loops(problem: Problem, dag: Dag, rank: int, features: int) -> dict[str, Callable[[], object]]:
    """`gather`: read the rows of all edges, once for each tail. `stream`: read each tail's state
    and add it to that of every head.
    """
    library, width = _library(), rank * features
    if library is None or width % 8:
        return {}
    library.omp_set_num_threads(torch.get_num_threads())
    n, col = problem.graph.num_nodes, problem.graph.forward.col.int()
    states = {node: torch.zeros(n, width) for node in dag.nodes}
    address = {node: ctypes.c_void_p(state.data_ptr()) for node, state in states.items()}
    columns, size = ctypes.c_void_p(col.data_ptr()), ctypes.c_int64

    def gather() -> None:
        for node in dag.nodes[:-1]:
            library.gather(address[node], size(width), columns, size(len(col)))

    def stream() -> None:
        for node in dag.nodes[:-1]:
            heads = [address[head] for tail, head in dag.edges if tail == node]
            array = (ctypes.c_void_p * len(heads))(*heads)
            library.stream(address[node], array, size(len(heads)), size(states[node].numel()))

    return {"gather": gather, "stream": stream}


def traffic(problem: Problem, dag: Dag, rank: int, features: int) -> dict[str, float]:
    """Bytes that the two loops move, and the floating point operations of the whole forward."""
    graph = problem.graph
    state, row = 4.0 * graph.num_nodes * rank * features, 4.0 * rank * features
    tails = len(dag.nodes) - 1
    mixes = graph.num_segments + graph.num_nodes * bool(graph.loop.any())
    return {
        "gather": tails * graph.num_edges * (row + 4),
        "stream": state * (tails + 2 * len(dag.edges)),
        "flops": 2.0 * features * rank * (tails * graph.num_edges + len(dag.edges) * mixes * rank),
    }
