"""Random graphs, states and weights, and the dense formula that results are compared with."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from tensus_tn.dag import Dag
from tensus_tn.propagation import extension
from tensus_tn.propagation.functional import propagate, propagate_dag
from tensus_tn.propagation.relation_graph import RelationGraph

TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5, torch.bfloat16: 2e-2}


native = pytest.mark.skipif(extension._C is None, reason="needs the compiled extension")


def dense(graph):
    matrices = [torch.from_numpy(a.toarray()).double() for a in graph.to_scipy().values()]
    size = graph.num_nodes
    return torch.stack(matrices) if matrices else torch.zeros(0, size, size, dtype=torch.float64)


def formula(a, h, w):
    return torch.einsum("imn,npf,ipq->mqf", a, h.double(), w.double())


def dag_formula(a, dag, h, weights):
    states = {dag.source: h.double()}
    for k in dag.nodes[1:]:
        into_k = [edge for edge in dag.edges if edge[1] == k]
        states[k] = sum(formula(a, states[j], weights[j, k]) for j, _ in into_k)
    return states


def grouped_formula(a, dag, h, weights, groups):
    """The states of all nodes, each column by the weights of its group."""
    states = {dag.source: h.double()}
    for k in dag.nodes[1:]:
        into_k = [edge for edge in dag.edges if edge[1] == k]
        states[k] = sum(
            torch.einsum("imn,npf,fipq->mqf", a, states[j], weights[j, k].double()[groups])
            for j, _ in into_k
        )
    return states


def only_chosen(graph, weights, choices):
    """The weights, with zeros where an edge does not use a relation."""

    def used(edge):
        names = (choices or {}).get(edge, graph.relation_names)
        return torch.tensor([name in names for name in graph.relation_names])[:, None, None]

    return {edge: torch.where(used(edge), w, 0.0) for edge, w in weights.items()}


def assert_close(got, want, dtype, size=None):
    """Equal up to rounding, relative to the largest entry, or to `size`, what is added up."""
    assert got.shape == want.shape
    if size is None:
        size = want.abs().max() if want.numel() else torch.ones(())
    error = (got.double() - want.double()).abs() / size.clamp_min(1e-30)
    assert (error <= TOLERANCE[dtype]).all(), f"relative error {error.max():.2e}"


def random_graph(
    nodes, edges, relations=3, *, seed=0, weighted=False, dtype=torch.float32, **options
):
    """A graph with `edges` random edges (duplicates are summed) over `relations` relations."""
    rng = np.random.default_rng(seed)
    matrices = {}
    for i in range(relations):
        count = edges // relations + (i < edges % relations)
        row, col = rng.integers(0, max(nodes, 1), (2, count))
        value = rng.random(count) + 0.1 if weighted else np.ones(count)
        matrices[f"r{i}"] = sp.csr_array((value, (row, col)), shape=(nodes, nodes))
    return RelationGraph.from_scipy(matrices, num_nodes=nodes, dtype=dtype, **options)


GRAPHS = {
    "plain": {},
    "weighted": {"weighted": True},
    "row normalised": {"normalize": "row"},
    "as in DiffMG": {"normalize": "row", "self_loops": True, "identity": True, "zero": True},
    "symmetric": {"normalize": "sym", "weighted": True, "identity": True},
    "loops only": {"self_loops": True},
}


def random_weights(graph, p, q, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(graph.num_relations, p, q, generator=generator, dtype=dtype)


def random_state(nodes, p, features, dtype=torch.float64, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(nodes, p, features, generator=generator, dtype=torch.float64).to(dtype)


def sum_dtype(dtype):
    return torch.float64 if dtype == torch.float64 else torch.float32


def check_edge(graph, p, q, features, dtype):
    """One edge: the value and the gradients of h and w against the dense formula."""
    h = random_state(graph.num_nodes, p, features, dtype).requires_grad_()
    w = random_weights(graph, p, q, dtype=sum_dtype(dtype)).requires_grad_()
    grad = random_state(graph.num_nodes, q, features, dtype, seed=2)

    def wanted(change):
        """The value and the gradients by the formula, with all numbers changed."""
        h_ref, w_ref = (change(t.detach().double()).requires_grad_() for t in (h, w))
        out = formula(change(dense(graph)), h_ref, w_ref)
        return [out.detach(), *torch.autograd.grad(out, [h_ref, w_ref], change(grad.double()))]

    out = propagate(graph, h, w)
    assert out.dtype == dtype
    got = [out.detach(), *torch.autograd.grad(out, [h, w], grad)]
    for a, b, size in zip(got, wanted(torch.clone), wanted(torch.abs), strict=True):
        assert_close(a, b, dtype, size)


def small_problem(kind="as in DiffMG", dtype=torch.float64, p=2, q=3, features=5):
    graph = random_graph(7, 20, 2, dtype=dtype, **GRAPHS[kind])
    h = random_state(7, p, features, dtype).requires_grad_()
    w = random_weights(graph, p, q, dtype=dtype).requires_grad_()
    return graph, h, w


class Recorder(torch.utils._python_dispatch.TorchDispatchMode):
    """Keeps the arguments with which our operators are called."""

    def __init__(self):
        super().__init__()
        self.calls = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "tensus_tn":
            self.calls[func] = args
        return func(*args, **(kwargs or {}))


def operator_calls(graph, h, w, names=None, groups=None):
    """The calls of one link that uses the relations `names`, or all."""
    dag = Dag.path(1)
    choices = None if names is None else dict.fromkeys(dag.edges, names)
    weights = dict.fromkeys(dag.edges, w)
    with Recorder() as recorder:
        out = propagate_dag(graph, dag, h, weights, choices=choices, groups=groups)
        out.square().sum().backward()
    return {str(op): (op, args) for op, args in recorder.calls.items()}


def tree_detach(args):
    return torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, args)


def sizable_problem(rank=(1, 2, 3, 1)):
    """Large enough for many chunks and for states beyond the arena's threshold."""
    graph = random_graph(3000, 60_000, **GRAPHS["as in DiffMG"])
    dag = Dag.complete(3)
    weights = {}
    for j, k in dag.edges:
        w = random_weights(graph, rank[j], rank[k], j + 5 * k, torch.float32)
        weights[j, k] = w.requires_grad_()
    h = random_state(3000, rank[0], 64, torch.float32).requires_grad_()
    return graph, dag, h, weights, random_state(3000, rank[-1], 64, torch.float32, seed=3)


def run_problem(graph, dag, h, weights, grad, choices=None):
    out = propagate_dag(graph, dag, h, weights, choices=choices)
    return [out.detach(), *torch.autograd.grad(out, [h, *weights.values()], grad)]
