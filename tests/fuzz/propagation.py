"""Random graphs, DAGs, sizes, types and layouts: values and gradients against the dense formula."""

import random

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from tensus_tn import Dag, RelationGraph
from tensus_tn.propagation.functional import propagate_dag
from tests.network.networks import random_dag

#: Relative to the same sum over absolute values.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 3e-2}


def check(rng: random.Random) -> None:
    dtype = rng.choice(list(TOLERANCE))
    graph = random_graph(rng, torch.float64 if dtype == torch.float64 else torch.float32)
    dag = random_dag(rng, max_nodes=5)
    ranks = {node: rng.randint(1, 4) for node in dag.nodes}
    choices = random_choices(rng, graph, dag)
    h = random_layout(rng, (graph.num_nodes, ranks[dag.source], rng.choice([1, 3, 16, 33, 64])))
    h = h.to(dtype).requires_grad_()
    weights = {
        (j, k): random_layout(rng, (graph.num_relations, ranks[j], ranks[k])).requires_grad_()
        for j, k in dag.edges
    }
    values = graph.values().clone().requires_grad_()
    states = propagate_dag(
        graph.with_values(values), dag, h, weights, choices=choices, return_states=True
    )
    want, size = (
        dense_states(graph, dag, *inputs, choices)
        for inputs in ((values, h, weights), absolute(values, h, weights))
    )
    inputs = [h, values, *weights.values()]
    for node in dag.nodes[1:]:
        assert states[node].dtype == dtype
        assert_close(states[node], want[node], size[node], dtype)
    wanted = rng.sample(dag.nodes[1:], rng.randint(1, len(dag.nodes) - 1))
    grads = {node: torch.randn(states[node].shape).to(dtype) for node in wanted}
    compare_gradients(states, want, size, grads, inputs, dtype)


def random_graph(rng: random.Random, dtype: torch.dtype) -> RelationGraph:
    """With node types or without, of any density, perhaps without nodes, edges or relations."""
    normalize = rng.choice([None, "row", "sym"])
    counts = {kind: rng.choice([0, 1, 4, 20]) for kind in ("a", "b")[: rng.randint(1, 2)]}
    relations = {}
    for i in range(rng.randint(0, 4)):
        source, target = rng.choice(list(counts)), rng.choice(list(counts))
        shape = counts[target], counts[source]
        density = rng.choice([0.0, 0.05, 0.3, 1.0])
        generator = np.random.default_rng(rng.randrange(2**32))
        value = (generator.random(shape) + 0.1) * (generator.random(shape) < density)
        relations[source, f"r{i}", target] = sp.csr_array(value)
    return RelationGraph.from_scipy(
        relations, num_nodes=counts, normalize=normalize, dtype=dtype,
        self_loops=rng.random() < 0.5, identity=rng.random() < 0.5, zero=rng.random() < 0.5,
    )  # fmt: skip


def random_choices(rng: random.Random, graph: RelationGraph, dag: Dag):
    if rng.random() < 0.5:
        return None
    names = list(graph.relation_names)
    some = rng.sample(dag.edges, rng.randint(0, len(dag.edges)))
    return {edge: rng.sample(names, rng.randint(0, len(names))) for edge in some}


def random_layout(rng: random.Random, shape: tuple[int, ...]) -> Tensor:
    """Random numbers: contiguous, transposed, strided, broadcast or from the middle of others."""
    kind = rng.randrange(5)
    if kind == 0:
        return torch.randn(shape)
    if kind == 1:
        return torch.randn(shape[::-1]).permute(2, 1, 0)
    if kind == 2:
        return torch.randn(shape[0], 2 * shape[1], shape[2])[:, ::2]
    if kind == 3:
        return torch.randn(shape[0], 1, shape[2]).expand(shape)
    return torch.randn(shape[0] + 1, shape[1], shape[2] + 3)[1:, :, 2:-1]


def absolute(values: Tensor, h: Tensor, weights: dict) -> tuple[Tensor, Tensor, dict]:
    positive = {edge: w.abs() for edge, w in weights.items()}
    return values.abs(), h.abs(), positive


def dense_states(graph: RelationGraph, dag: Dag, values, h, weights, choices) -> dict:
    """`H_k = sum_{j -> k} sum_{i,p} w_jk[i, p, q] A^i H_j[:, p]`, with dense matrices."""
    matrices = dense_matrices(graph, values)
    used = {edge: torch.ones(graph.num_relations, 1, 1) for edge in dag.edges}
    for edge, names in (choices or {}).items():
        used[edge] = torch.tensor([float(n in names) for n in graph.relation_names])[:, None, None]
    states = {dag.source: h.double()}
    for k in dag.nodes[1:]:
        states[k] = sum(
            torch.einsum("imn,npf,ipq->mqf", matrices, states[j], (weights[j, k] * used[j, k]).double())
            for j, head in dag.edges
            if head == k
        )  # fmt: skip
    return states


def dense_matrices(graph: RelationGraph, values: Tensor) -> Tensor:
    """(C, N, N), with the values of the edges and the self-loops that are folded."""
    forward, size = graph.forward, graph.num_nodes
    bare = graph.with_values(torch.zeros_like(values.detach())).to_scipy()
    loops = torch.zeros(graph.num_relations, size, size, dtype=torch.float64)
    for i, matrix in enumerate(bare.values()):
        loops[i] = torch.from_numpy(matrix.toarray())
    owner = forward.edge_seg()
    place = (forward.seg_rel.long()[owner], forward.seg_row()[owner], forward.col.long())
    return loops.index_put(place, values.double(), accumulate=True)


def compare_gradients(states, want, size, grads, inputs, dtype) -> None:
    got = torch.autograd.grad(
        [states[node] for node in grads], inputs, list(grads.values()), allow_unused=True
    )
    exact = gradient(want, grads, inputs, lambda grad: grad)
    bound = gradient(size, grads, inputs, Tensor.abs)
    for a, b, limit in zip(got, exact, bound, strict=True):
        assert_close(torch.zeros_like(b) if a is None else a, b, limit, dtype)


def gradient(states, grads, inputs, change) -> list[Tensor]:
    outputs = [(states[node], change(grad.double())) for node, grad in grads.items()]
    outputs = [(state, grad) for state, grad in outputs if state.requires_grad]
    if not outputs:
        return [torch.zeros_like(x) for x in inputs]
    ends, starts = zip(*outputs, strict=True)
    found = torch.autograd.grad(ends, inputs, starts, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]


def assert_close(got: Tensor, want: Tensor, size: Tensor, dtype: torch.dtype) -> None:
    assert got.shape == want.shape
    error = (got.double() - want.double()).abs()
    limit = TOLERANCE[dtype] * size.double().abs() + 1e-30
    assert (error <= limit).all(), f"off by {(error / limit).max():.3g} times what is allowed"
