"""Products with sparse features: a step of propagation from features to the nodes that have them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from tensus_tn.dag import Dag
from tensus_tn.nn.graph_cache import cached
from tensus_tn.propagation import extension
from tensus_tn.propagation.functional import propagate_dag
from tensus_tn.propagation.relation_graph import RelationGraph

_STEP = Dag.path(1)


def sparse_product(x: Tensor, weight: Tensor, dropout: float = 0.0) -> Tensor:
    """`x @ weight` (n, F), with dropout of the non-zeros of `x`.

    Our kernel takes a half to a quarter of the time of `torch.sparse.mm`, which runs on one thread.
    The structure that it needs is made once, and kept as long as `x` (see `set_graph_cache_size`).

    Args:
        x: A sparse matrix (n, size).
        weight: A matrix (size, F).
        dropout: The share of the non-zeros that is left out; the others are scaled up.

    Example:
        >>> x = torch.tensor([[0.0, 2.0], [0.0, 0.0], [1.0, 3.0]])
        >>> sparse_product(x.to_sparse(), torch.tensor([[1.0], [10.0]])).flatten()
        tensor([20.,  0., 31.])
    """
    if not _has_kernel(x, weight):
        product: Tensor = torch.sparse.mm(drop_nonzeros(x, dropout), weight)
        return product
    return _undisturbed()(x, weight, dropout)


def _by_kernel(x: Tensor, weight: Tensor, dropout: float) -> Tensor:
    graph = cached([x], "features", lambda: _as_graph(x))
    nodes = graph.plan_rows(_STEP, torch.arange(len(x)))
    if dropout:
        graph = graph.with_values(F.dropout(graph.values(), dropout))
    h = torch.cat([weight.new_zeros(len(x), weight.shape[1]), weight])
    one = weight.new_ones(1, 1, 1)
    return propagate_dag(graph, _STEP, h, dict.fromkeys(_STEP.edges, one), rows=nodes).squeeze(1)


def _undisturbed() -> Callable[[Tensor, Tensor, float], Tensor]:
    """`_by_kernel`; a compiled program can't look into it, as sparse tensors are foreign to it."""
    return _by_kernel if "torch._dynamo" not in sys.modules else _disabled()


@cache
def _disabled() -> Callable[[Tensor, Tensor, float], Tensor]:
    disabled: Callable[[Tensor, Tensor, float], Tensor] = torch.compiler.disable(_by_kernel)
    return disabled


def drop_nonzeros(x: Tensor, p: float) -> Tensor:
    """Dropout of the non-zeros of a sparse matrix."""
    if p == 0:
        return x
    if x.layout == torch.sparse_csr:
        kept = F.dropout(x.values(), p)
        return torch.sparse_csr_tensor(x.crow_indices(), x.col_indices(), kept, x.shape)
    coo = x.to_sparse_coo().coalesce()
    kept = F.dropout(coo.values(), p)
    return torch.sparse_coo_tensor(coo.indices(), kept, x.shape, is_coalesced=True)


def _has_kernel(x: Tensor, weight: Tensor) -> bool:
    """Whether this product is one for our kernel, which must see the matrix and not learn it."""
    here = extension._C is not None and x.device.type == weight.device.type == "cpu"
    known = x.dtype == weight.dtype and x.dtype in (torch.float32, torch.float64)
    return here and known and not (x.requires_grad or torch.compiler.is_compiling())


def _as_graph(x: Tensor) -> RelationGraph:
    """Its first nodes are the rows of `x`, the others its columns."""
    coo = x.to_sparse_coo().coalesce()
    row, column = coo.indices()
    edges = torch.stack([column + len(x), row])  # from the feature to the node
    graph = RelationGraph.from_edge_index({"has": edges}, sum(x.shape), dtype=x.dtype)
    return graph.with_values(coo.values())
