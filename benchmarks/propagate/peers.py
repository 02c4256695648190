"""The same propagation in every other way: each peer at its best, differentiable in h and w.

A peer is made from a `Problem` and gives a step `(h (N, P, F), w (C, P, Q)) -> (N, Q, F)`;
`run_dag` makes all states of a DAG out of steps. Transposes are cached, and backward passes through
sparse matrices are written by hand: torch would transpose anew or make dense gradients.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from benchmarks.propagate.graphs import Problem
from tensus_tn.dag import Dag
from tensus_tn.propagation.functional import propagate_dag

Step = Callable[[Tensor, Tensor], Tensor]
Product = Callable[[Tensor], Tensor]
Weights = Mapping[tuple[int, int], Tensor]


class UnsupportedError(Exception):
    """This peer can't express this problem; the message says why."""


@dataclass(frozen=True)
class Peer:
    title: str
    library: str
    make: Callable[[Problem], Step]
    order: str = "tail"  # one step for a tail's edges at once, for a head's, or for each "edge"


def run_dag(dag: Dag, order: str, step: Step, h: Tensor, weights: Weights) -> Tensor:
    """The state of the sink, with as few steps as the peer's order allows."""
    states = {dag.source: h}
    for node in dag.nodes:
        if order == "head" and node != dag.source:
            edges = [edge for edge in dag.edges if edge[1] == node]
            joined = torch.cat([states[tail] for tail, _ in edges], dim=1)
            states[node] = step(joined, torch.cat([weights[edge] for edge in edges], dim=1))
        if order == "tail" and node != dag.sink:
            edges = [edge for edge in dag.edges if edge[0] == node]
            joined = step(states[node], torch.cat([weights[edge] for edge in edges], dim=2))
            parts = joined.split([weights[edge].shape[2] for edge in edges], dim=1)
            for (_, head), part in zip(edges, parts, strict=True):
                states[head] = states[head] + part if head in states else part
        if order == "edge" and node != dag.source:
            edges = [edge for edge in dag.edges if edge[1] == node]
            states[node] = sum(step(states[edge[0]], weights[edge]) for edge in edges)
    return states[dag.sink]


# Sparse engines: a matrix (M, N) -> a function (N, W) -> (M, W)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, product, transposed):
        ctx.transposed = transposed
        return product(x)

    @staticmethod
    def backward(ctx, grad):
        return ctx.transposed(grad.contiguous()), None, None


def _differentiable(engine: Callable[[sp.csr_array], Product]) -> Callable[[sp.csr_array], Product]:
    def make(matrix: sp.csr_array) -> Product:
        product, transposed = engine(matrix), engine(matrix.T.tocsr())
        return lambda x: _Linear.apply(x, product, transposed)

    return make


def _parts(matrix: sp.csr_array, dtype: type = np.int32) -> tuple[Tensor, Tensor, Tensor]:
    matrix.sort_indices()
    ptr, col = (torch.from_numpy(a.astype(dtype)) for a in (matrix.indptr, matrix.indices))
    return ptr, col, torch.from_numpy(matrix.data)


@_differentiable
def csr_engine(matrix: sp.csr_array) -> Product:
    csr = torch.sparse_csr_tensor(*_parts(matrix), matrix.shape, check_invariants=True)
    return lambda x: csr @ x


@_differentiable
def reduce_engine(matrix: sp.csr_array) -> Product:
    csr = torch.sparse_csr_tensor(*_parts(matrix, np.int64), matrix.shape, check_invariants=True)
    return lambda x: torch.sparse.mm(csr, x, "sum")


@_differentiable
def coo_engine(matrix: sp.csr_array) -> Product:
    coo = _coo(matrix)
    return lambda x: torch.sparse.mm(coo, x)


@_differentiable
def bag_engine(matrix: sp.csr_array) -> Product:
    ptr, col, value = _parts(matrix)

    def product(x: Tensor) -> Tensor:
        return embedding_bag(
            col, x, ptr, mode="sum", per_sample_weights=value, include_last_offset=True
        )

    return product


@_differentiable
def scipy_engine(matrix: sp.csr_array) -> Product:
    by_type = {torch.float32: matrix, torch.float64: matrix.astype(np.float64)}
    return lambda x: torch.from_numpy(by_type[x.dtype] @ x.detach().numpy())


@_differentiable
def edge_index_engine(matrix: sp.csr_array) -> Product:
    from torch_geometric import EdgeIndex

    coo = matrix.tocoo()
    index = torch.from_numpy(np.stack([coo.row, coo.col]).astype(np.int64))
    edges = EdgeIndex(index, sparse_size=matrix.shape, sort_order="row").fill_cache_()
    value = torch.from_numpy(coo.data)
    return lambda x: edges.matmul(x, input_value=value)


@_differentiable
def torch_sparse_engine(matrix: sp.csr_array) -> Product:
    from torch_sparse import SparseTensor

    ptr, col, value = _parts(matrix, np.int64)
    sparse = SparseTensor(rowptr=ptr, col=col, value=value, sparse_sizes=matrix.shape)
    return lambda x: sparse @ x


def dgl_engine(matrix: sp.csr_array) -> Product:
    import dgl

    coo = matrix.tocoo()
    ends = (torch.from_numpy(ids.astype(np.int64)) for ids in (coo.col, coo.row))
    counts = {"from": matrix.shape[1], "to": matrix.shape[0]}
    graph = dgl.heterograph({("from", "edge", "to"): tuple(ends)}, counts)
    graph.create_formats_()
    value = torch.from_numpy(coo.data)[:, None]
    return lambda x: dgl.ops.u_mul_e_sum(graph, x, value)


def _coo(matrix: sp.csr_array) -> Tensor:
    coo = matrix.tocoo()
    index = torch.from_numpy(np.stack([coo.row, coo.col]).astype(np.int64))
    value = torch.from_numpy(coo.data)
    return torch.sparse_coo_tensor(index, value, matrix.shape, check_invariants=True).coalesce()


# Forms


def _identity_part(problem: Problem, h: Tensor, w: Tensor) -> Tensor | float:
    return torch.matmul(w[problem.num_sparse].T, h) if problem.has_identity else 0.0


def one_product_per_rank(problem: Problem) -> Step:
    """As DiffMG is written: a COO product for every relation and rank, torch's own backward."""
    matrices = [_coo(matrix) for matrix in problem.matrices]

    def step(h: Tensor, w: Tensor) -> Tensor:
        out: list[Tensor | float] = [0.0] * w.shape[2]
        for i in range(problem.num_sparse + problem.has_identity):
            for p in range(w.shape[1]):
                x = h[:, p]
                y = torch.sparse.mm(matrices[i], x) if i < problem.num_sparse else x
                out = [total + w[i, p, q] * y for q, total in enumerate(out)]
        return torch.stack(out, dim=1)

    return step


def per_relation(engine: Callable[[sp.csr_array], Product]) -> Callable[[Problem], Step]:
    """One product for every relation, with all ranks in it."""

    def make(problem: Problem) -> Step:
        products = [engine(matrix) for matrix in problem.matrices]

        def step(h: Tensor, w: Tensor) -> Tensor:
            y = _identity_part(problem, h, w)
            for i, product in enumerate(products):
                y = y + torch.matmul(w[i].T, product(h.flatten(1)).view(h.shape))
            return y

        return step

    return make


def stacked(engine: Callable[[sp.csr_array], Product]) -> Callable[[Problem], Step]:
    """One product with all relations below each other: A h is materialised, (N, C P, F)."""

    def make(problem: Problem) -> Step:
        c, n = problem.num_sparse, problem.graph.num_nodes
        product = engine(_interleaved(problem.matrices, (c * n, n)))

        def step(h: Tensor, w: Tensor) -> Tensor:
            sums = product(h.flatten(1)).view(n, c * h.shape[1], h.shape[2])
            mix = w[:c].permute(2, 0, 1).flatten(1)
            return torch.matmul(mix, sums) + _identity_part(problem, h, w)

        return step

    return make


def mix_first(engine: Callable[[sp.csr_array], Product]) -> Callable[[Problem], Step]:
    """Mix the ranks for every relation, then one product with all relations side by side."""

    def make(problem: Problem) -> Step:
        c, n = problem.num_sparse, problem.graph.num_nodes
        transposed = _interleaved([matrix.T for matrix in problem.matrices], (c * n, n))
        product = engine(transposed.T.tocsr())

        def step(h: Tensor, w: Tensor) -> Tensor:
            q, f = w.shape[2], h.shape[2]
            mixed = torch.matmul(w[:c].transpose(1, 2).flatten(0, 1), h)
            y = product(mixed.reshape(n * c, q * f)).view(n, q, f)
            return y + _identity_part(problem, h, w)

        return step

    return make


def _interleaved(matrices: list[sp.csr_array], shape: tuple[int, int]) -> sp.csr_array:
    """Row n of relation i is row n C + i: what belongs to a node stays together."""
    coos = [matrix.tocoo() for matrix in matrices]
    row = np.concatenate([coo.row.astype(np.int64) * len(coos) + i for i, coo in enumerate(coos)])
    col = np.concatenate([coo.col for coo in coos])
    return sp.csr_array((np.concatenate([coo.data for coo in coos]), (row, col)), shape)


def segments(engine: Callable[[sp.csr_array], Product]) -> Callable[[Problem], Step]:
    """Non-empty (row, relation) pairs only, self-loops folded: our plan in PyTorch operators."""

    def make(problem: Problem) -> Step:
        graph = problem.graph
        forward = graph.forward
        order = torch.argsort(forward.seg_rel, stable=True)
        edges = sp.csr_array(
            (graph.values().numpy(), forward.col.numpy(), forward.seg_ptr.numpy()),
            (graph.num_segments, graph.num_nodes),
        )
        product = engine(edges[order.numpy()])
        rows = forward.seg_row()[order]
        sizes = torch.bincount(forward.seg_rel, minlength=graph.num_relations).tolist()
        add_loops = folded_loops(problem)

        def step(h: Tensor, w: Tensor) -> Tensor:
            sums = product(h.flatten(1)).view(-1, *h.shape[1:]).split(sizes)
            parts = [torch.matmul(w[i].T, part) for i, part in enumerate(sums) if sizes[i]]
            return add_loops(h, w).index_add(0, rows, torch.cat(parts))

        return step

    return make


def folded_loops(problem: Problem) -> Step:
    """Every relation's diagonal at once, by one small matrix for each node."""
    graph = problem.graph
    forward, c = graph.forward, graph.num_relations
    loops = graph.loop.repeat(graph.num_nodes, 1)
    loops[forward.seg_row(), forward.seg_rel.long()] = forward.loops(graph.loop)

    def step(h: Tensor, w: Tensor) -> Tensor:
        if not loops.any():
            return h.new_zeros(h.shape[0], w.shape[2], h.shape[2])
        mix = torch.matmul(loops, w.transpose(1, 2).reshape(c, -1)).view(-1, w.shape[2], w.shape[1])
        return torch.bmm(mix, h)

    return step


class _Merged(torch.autograd.Function):
    """`y[:, q] = sum_p M_pq h[:, p]`, where edge e of M_pq has the value a_e w[i_e, p, q]."""

    @staticmethod
    def forward(ctx, h, w, edges):
        ctx.save_for_backward(h, w)
        ctx.edges = edges
        return edges.product(h, edges.mixed(w), transposed=False)

    @staticmethod
    def backward(ctx, grad):
        h, w = ctx.saved_tensors
        dh = ctx.edges.product(grad, ctx.edges.mixed(w.transpose(1, 2)), transposed=True)
        return dh, ctx.edges.weight_gradient(h, grad, w), None


class _MergedEdges:
    """All edges in one CSR pattern and its transpose, with the relation and the value of each."""

    def __init__(self, problem: Problem):
        forward, self.n = problem.graph.forward, problem.graph.num_nodes
        seg = forward.edge_seg()
        self.row, self.rel = forward.seg_row()[seg], forward.seg_rel[seg].long()
        self.col, self.value = forward.col.long(), problem.graph.values()
        numbers = np.arange(len(self.row))
        pattern = sp.coo_array((numbers, (self.row.numpy(), self.col.numpy())), (self.n, self.n))
        self.patterns = [_sorted_csr(m) for m in (pattern, pattern.T)]

    def mixed(self, w: Tensor) -> Tensor:
        """The values of the edges for every pair of ranks, (P, Q, E)."""
        return w.permute(1, 2, 0)[:, :, self.rel] * self.value

    def product(self, x: Tensor, values: Tensor, transposed: bool) -> Tensor:
        ptr, col, edge = self.patterns[transposed]
        values = values[:, :, edge]
        y = []
        for q in range(values.shape[1]):
            y.append(0.0)
            for p in range(values.shape[0]):
                csr = torch.sparse_csr_tensor(
                    ptr, col, values[p, q], (self.n, self.n), check_invariants=False
                )
                y[q] = y[q] + csr @ x[:, p]
        return torch.stack(y, dim=1)

    def weight_gradient(self, h: Tensor, grad: Tensor, w: Tensor) -> Tensor:
        dw = torch.zeros_like(w)
        for part in torch.arange(len(self.row)).split(1 << 15):
            sent = h[self.col[part]] * self.value[part, None, None]
            products = torch.bmm(sent, grad[self.row[part]].transpose(1, 2))
            dw.index_add_(0, self.rel[part], products)
        return dw


def _sorted_csr(pattern: sp.coo_array) -> tuple[Tensor, Tensor, Tensor]:
    """Row pointers, columns and edge numbers in CSR order; equal places are kept apart."""
    order = np.lexsort((pattern.col, pattern.row))
    ptr = np.searchsorted(pattern.row[order], np.arange(pattern.shape[0] + 1))
    parts = (ptr.astype(np.int32), pattern.col[order].astype(np.int32), pattern.data[order])
    return tuple(torch.from_numpy(part) for part in parts)


def merged(problem: Problem) -> Step:
    """The weights folded into the edge values: one CSR product for every pair of ranks."""
    edges, add_loops = _MergedEdges(problem), folded_loops(problem)
    return lambda h, w: add_loops(h, w) + _Merged.apply(h, w, edges)


def dense_einsum(problem: Problem) -> Step:
    if problem.graph.num_nodes > 2000:
        raise UnsupportedError("too large for dense matrices")
    matrices = torch.from_numpy(np.stack([matrix.toarray() for matrix in problem.matrices]))

    def step(h: Tensor, w: Tensor) -> Tensor:
        n, p, f = h.shape
        mix = w[: problem.num_sparse].permute(2, 0, 1).flatten(1)
        sums = torch.matmul(matrices, h.flatten(1)).view(-1, n, p, f)
        return torch.matmul(mix, sums.permute(1, 0, 2, 3).reshape(n, -1, f)) + _identity_part(
            problem, h, w
        )

    return step


def rgcn(problem: Problem) -> Step:
    """PyG's RGCNConv with the weights w[i] (x) I; its sum or mean must be the normalisation."""
    from torch_geometric.nn import RGCNConv

    coos = [matrix.tocoo() for matrix in problem.matrices]
    index = np.concatenate([np.stack([coo.col, coo.row]) for coo in coos], axis=1)
    edge_index = torch.from_numpy(index.astype(np.int64))
    edge_type = torch.repeat_interleave(
        torch.arange(len(coos)), torch.tensor([len(coo.row) for coo in coos])
    )
    if all((coo.data == 1).all() for coo in coos):
        aggregation = "sum"
    elif all(np.allclose(coo.data * np.bincount(coo.row)[coo.row], 1) for coo in coos):
        aggregation = "mean"
    else:
        raise UnsupportedError("RGCNConv takes no edge weights")

    def step(h: Tensor, w: Tensor) -> Tensor:
        (n, p, f), q = h.shape, w.shape[2]
        conv = RGCNConv(p * f, q * f, len(coos), aggr=aggregation, root_weight=False, bias=False)
        weight = torch.einsum("cpq,fg->cpfqg", w[: len(coos)], torch.eye(f)).reshape(
            -1, p * f, q * f
        )
        inputs = (h.flatten(1), edge_index, edge_type)
        y = torch.func.functional_call(conv, {"weight": weight}, inputs)
        return y.view(n, q, f) + _identity_part(problem, h, w)

    return step


def tensus(problem: Problem) -> Step:
    """This library, one step."""
    dag = Dag([(0, 1)])
    return lambda h, w: propagate_dag(problem.graph, dag, h, {(0, 1): w})


OURS = "tensus_tn"
DIFFMG = "COO, one product per edge, relation, rank (DiffMG)"
_OPTIONAL = {"PyG": "torch_geometric", "torch_sparse": "torch_sparse", "DGL": "dgl"}
ABSENT = [library for library, module in _OPTIONAL.items() if find_spec(module) is None]
_ALL = [
    Peer("dense einsum", "PyTorch", dense_einsum),
    Peer(DIFFMG, "PyTorch", one_product_per_rank, "edge"),
    Peer("COO per relation", "PyTorch", per_relation(coo_engine)),
    Peer("CSR per relation", "PyTorch", per_relation(csr_engine)),
    Peer("CSR stacked", "PyTorch", stacked(csr_engine)),
    Peer("CSR segments, loops folded", "PyTorch", segments(csr_engine)),
    Peer("CSR merged", "PyTorch", merged),
    Peer("sparse reduce stacked", "PyTorch", stacked(reduce_engine)),
    Peer("sparse reduce segments, loops folded", "PyTorch", segments(reduce_engine)),
    Peer("sparse reduce mix first", "PyTorch", mix_first(reduce_engine), "head"),
    Peer("embedding_bag segments, loops folded", "PyTorch", segments(bag_engine)),
    Peer("scipy segments, loops folded", "scipy", segments(scipy_engine)),
    Peer("PyG EdgeIndex.matmul stacked", "PyG", stacked(edge_index_engine)),
    Peer("PyG RGCNConv", "PyG", rgcn),
    Peer("SparseTensor stacked", "torch_sparse", stacked(torch_sparse_engine)),
    Peer("SparseTensor mix first", "torch_sparse", mix_first(torch_sparse_engine), "head"),
    Peer("SparseTensor segments, loops folded", "torch_sparse", segments(torch_sparse_engine)),
    Peer("u_mul_e_sum stacked", "DGL", stacked(dgl_engine)),
    Peer("u_mul_e_sum mix first", "DGL", mix_first(dgl_engine), "head"),
    Peer("u_mul_e_sum segments, loops folded", "DGL", segments(dgl_engine)),
]
PEERS = [peer for peer in _ALL if peer.library not in ABSENT]


def make_run(peer: Peer | None, problem: Problem, dag: Dag) -> Callable[[Tensor, Weights], Tensor]:
    """The whole DAG by a peer, or by this library for None."""
    if peer is None:
        return lambda h, weights: propagate_dag(problem.graph, dag, h, weights)
    step = peer.make(problem)
    return lambda h, weights: run_dag(dag, peer.order, step, h, weights)
