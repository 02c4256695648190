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


def loops(
    problem: Problem, dag: Dag, rank: int, features: int, *, backward: bool = False
) -> dict[str, Callable[[], object]]:
    """`gather`: read the rows of all edges, once for each tail. `stream`: read each tail's state
    and add it to that of every head.

    Backward, tails and heads have swapped their roles, and the state of every tail is read once
    more for the gradient of each link's weights.
    """
    library, width = _library(), rank * features
    if library is None or width % 8:
        return {}
    library.omp_set_num_threads(torch.get_num_threads())
    n, size = problem.graph.num_nodes, ctypes.c_int64
    structure = problem.graph.backward if backward else problem.graph.forward
    col, in_order = structure.col.int(), torch.arange(n, dtype=torch.int32)
    near = dag.nodes[1:] if backward else dag.nodes[:-1]
    far = {
        node: [(j, k)[not backward] for j, k in dag.edges if (j, k)[backward] == node]
        for node in near
    }
    state, other = ({node: torch.zeros(n, width) for node in dag.nodes} for _ in range(2))

    def address(tensor: torch.Tensor) -> ctypes.c_void_p:
        return ctypes.c_void_p(tensor.data_ptr())

    def read(rows: torch.Tensor, columns: torch.Tensor) -> None:
        library.gather(address(rows), size(width), address(columns), size(len(columns)))

    def gather() -> None:
        for node in near:
            read(state[node], col)

    def stream() -> None:
        for node in near:
            array = (ctypes.c_void_p * len(far[node]))(*(address(state[k]) for k in far[node]))
            library.stream(address(state[node]), array, size(len(far[node])), size(n * width))
            for k in far[node] if backward else ():
                read(other[k], in_order)

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
