"""Products with sparse features: one pass over the edges from features to the nodes that have them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tensus_tn.nn.graph_cache import cached
from tensus_tn.propagation import extension
from tensus_tn.propagation.relation_graph import RelationGraph
from tensus_tn.propagation.segments import Segments


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
    if weight.ndim != 2 or len(weight) != x.shape[1]:
        raise ValueError(
            f"weight must have shape ({x.shape[1]}, F) for features {tuple(x.shape)}, got "
            f"{tuple(weight.shape)}"
        )
    if not _has_kernel(x, weight):
        product: Tensor = torch.sparse.mm(drop_nonzeros(x, dropout), weight)
        return product
    return _undisturbed()(x, weight, dropout)


def _by_kernel(x: Tensor, weight: Tensor, dropout: float) -> Tensor:
    matrix: _Matrix = cached([x], "features", lambda: _Matrix.of(x))
    values = F.dropout(matrix.values, dropout) if dropout else matrix.values
    product: Tensor = _Product.apply(weight, values, matrix, False)
    return product


@dataclass(frozen=True, eq=False)
class _Matrix:
    """A sparse matrix (n, m), ready for passes along its rows and along its columns.

    Attributes:
        rows: The non-zeros of every row: their columns, ascending.
        columns: The same of the transpose; `edge_perm` leads to the non-zeros in the order of rows.
        values: Of the non-zeros, in the order of rows.
    """

    rows: Segments
    columns: Segments
    values: Tensor

    @classmethod
    def of(cls, x: Tensor) -> _Matrix:
        """From a sparse tensor, whose rows and columns are nodes of a graph for a while."""
        coo = x.to_sparse_coo().coalesce()
        row, column = coo.indices()
        edges = torch.stack([column + len(x), row])
        graph = RelationGraph.from_edge_index({"has": edges}, sum(x.shape), dtype=x.dtype)
        forward, backward = graph.forward, graph.backward
        return cls(
            replace(forward, row_ptr=forward.row_ptr[: len(x) + 1], col=forward.col - len(x)),
            replace(backward, row_ptr=backward.row_ptr[len(x) :].contiguous()),
            coo.values(),
        )

    def times(self, h: Tensor, values: Tensor, transposed: bool) -> Tensor:
        """The product (n, F) with `h` (m, F); or that of the transpose, the other way round."""
        way = self.rows
        if transposed:
            assert self.columns.edge_perm is not None
            way, values = self.columns, values[self.columns.edge_perm]
        state = h.contiguous().unsqueeze(1)
        out = torch.ops.tensus_tn.empty_state(state, way.num_rows, 1)
        one, no_loops = h.new_ones(1, 1, 1), torch.full_like(way.row_ptr[:-1], -1)
        torch.ops.tensus_tn.gather_mix(
            state, None, [one], values, None, None, None, way.structure()[:4], [], no_loops, [],
            [out], [False], [], [], True,
        )  # fmt: skip
        product: Tensor = out.squeeze(1)
        return product


class _Product(torch.autograd.Function):
    """`A @ h`, or `A^T @ h`: linear in `h`, so each is the derivative of the other.

    The values of `A` are an argument of their own, for `torch.func.vmap` may drop others each time.
    """

    @staticmethod
    def forward(h: Tensor, values: Tensor, matrix: _Matrix, transposed: bool) -> Tensor:
        return matrix.times(h, values, transposed)

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor, Tensor, _Matrix, bool], output: Tensor
    ) -> None:
        _, values, ctx.matrix, ctx.transposed = inputs
        ctx.save_for_backward(values)
        ctx.save_for_forward(values)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        grad = _Product.apply(grads[0], *ctx.saved_tensors, ctx.matrix, not ctx.transposed)
        return grad, None, None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        product: Tensor = _Product.apply(
            tangents[0], *ctx.saved_tensors, ctx.matrix, ctx.transposed
        )
        return product

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[int | None, int | None, None, None],
        h: Tensor,
        values: Tensor,
        matrix: _Matrix,
        transposed: bool,
    ) -> tuple[Tensor, int]:
        of_h, of_values, *_ = in_dims
        if of_values is None:
            assert of_h is not None
            h = h.movedim(of_h, 1)  # what is mapped lies side by side, as more columns
            product: Tensor = _Product.apply(h.flatten(1), values, matrix, transposed)
            return product.unflatten(1, h.shape[1:]), 1
        each_h = [h] * info.batch_size if of_h is None else h.unbind(of_h)
        pairs = zip(each_h, values.unbind(of_values), strict=True)
        return torch.stack([_Product.apply(*pair, matrix, transposed) for pair in pairs]), 0


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
