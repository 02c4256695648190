"""Foreign graph formats as checked edge lists with global node ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tensus_tn.propagation.node_ids import (
    RelationKey,
    node_counts,
    relation_name,
    require_ids,
    type_slices,
)
from tensus_tn.propagation.segments import owners


class Edges(NamedTuple):
    """The edges of one relation.

    Attributes:
        name: The name of the relation.
        row: The receiving nodes, int64 (E,), counted within `rows`.
        col: The sending nodes, int64 (E,), counted within `cols`.
        rows: The global ids of the nodes that may receive.
        cols: The global ids of the nodes that may send.
        value: Float64 (E,); None stands for ones.
        dtype: The floating type that the values were given in; None if they were none or integers.
        added: How many of the edges, the last ones, are self-loops that were added.
    """

    name: str
    row: Tensor
    col: Tensor
    rows: slice
    cols: slice
    value: Tensor | None
    dtype: torch.dtype | None
    added: int = 0

    def ends(self) -> tuple[Tensor, Tensor]:
        """The receiving and the sending nodes by their global ids."""
        return self.row + self.rows.start, self.col + self.cols.start


class Matrix(NamedTuple):
    """The stored entries of a sparse matrix of `shape`."""

    shape: tuple[int, ...]
    row: Tensor
    col: Tensor
    value: Tensor


def _require_named(what: str, relations: Any) -> None:
    if not isinstance(relations, Mapping):
        raise TypeError(
            f"expected a dict from the names of relations to {what}, got {type(relations).__name__}"
        )


def from_matrices(
    matrices: Mapping[RelationKey, Any],
    num_nodes: int | Mapping[str, int] | None,
    read: Callable[[RelationKey, Any], Matrix],
) -> tuple[list[Edges], dict[str, int]]:
    """Edges of sparse matrices, rows receiving; `read` knows their format."""
    _require_named("sparse matrices", matrices)
    read_matrices = {key: read(key, matrix) for key, matrix in matrices.items()}
    counts = node_counts(_common_size(read_matrices) if num_nodes is None else num_nodes)
    slices, relations = type_slices(counts), []
    for key, (shape, row, col, value) in read_matrices.items():
        rows, cols = _ends(key, slices)
        expected = (rows.stop - rows.start, cols.stop - cols.start)
        if shape != expected:
            raise ValueError(
                f"relation {key!r}: expected a matrix of shape {expected} (receiving by sending "
                f"nodes), got {shape}"
            )
        relations.append(_edges(key, row, col, value, rows, cols))
    return relations, counts


def read_scipy(key: RelationKey, matrix: Any) -> Matrix:
    """The entries of a scipy sparse matrix or array."""
    import scipy.sparse as sp  # here, because it takes longer to load than all of this package

    if not sp.issparse(matrix):
        raise TypeError(f"relation {key!r}: expected a scipy sparse matrix, got {type(matrix)}")
    _require_matrix(key, matrix.shape)
    coo = matrix.tocoo(copy=False)
    row, col, value = (torch.tensor(part) for part in (coo.row, coo.col, coo.data))
    return Matrix(matrix.shape, row, col, value)


def read_torch(key: RelationKey, matrix: Any) -> Matrix:
    """The entries of a torch sparse tensor in COO or CSR layout."""
    kind = matrix.layout if isinstance(matrix, Tensor) else type(matrix)
    if kind not in (torch.sparse_coo, torch.sparse_csr):
        raise TypeError(
            f"relation {key!r}: expected a torch tensor in COO or CSR layout, got {kind}"
        )
    _require_matrix(key, matrix.shape)
    _require_constant(key, matrix)
    if matrix.dense_dim():
        raise ValueError(f"relation {key!r}: expected one value per entry, got a hybrid tensor")
    if kind == torch.sparse_coo:
        matrix = matrix.coalesce()
        row, col = matrix.indices()
    else:
        crow, col = matrix.crow_indices(), matrix.col_indices()
        row = owners(crow)
    return Matrix(tuple(matrix.shape), row, col, matrix.values())


def from_edge_index(
    edge_index: Mapping[RelationKey, Tensor],
    num_nodes: int | Mapping[str, int],
    edge_weight: Mapping[RelationKey, Tensor],
) -> tuple[list[Edges], dict[str, int]]:
    """Edges of PyG's edge_index tensors (2, E): row 0 sends, row 1 receives."""
    _require_named("tensors (2, E)", edge_index)
    _require_named("weights (E,)", edge_weight)
    counts = node_counts(num_nodes)
    for key in edge_weight:
        if key not in edge_index:
            raise ValueError(f"edge_weight names {key!r}, which is not among the relations")
    slices, relations = type_slices(counts), []
    for key, index in edge_index.items():
        target, source, value = _read_edges(key, index)
        rows, cols = _ends(key, slices)
        value = edge_weight.get(key, value)
        relations.append(_edges(key, target, source, value, rows, cols, may_learn=True))
    return relations, counts


def _read_edges(key: RelationKey, index: Any) -> tuple[Tensor, Tensor, Tensor | None]:
    """Receiving and sending nodes, and values, of one of PyG's forms of edges.

    These are (2, E), an `EdgeIndex` among them; or a transposed sparse matrix, `adj_t`.
    """
    if hasattr(index, "sparse_sizes") and not isinstance(index, Tensor):  # torch_sparse
        row, col, value = index.coo()
        return row, col, value
    if not isinstance(index, Tensor):
        raise TypeError(f"relation {key!r}: edge_index must be a tensor, got {type(index)}")
    if index.layout != torch.strided:
        _, row, col, value = read_torch(key, index)
        return row, col, value
    if index.ndim != 2 or index.shape[0] != 2:
        raise ValueError(
            f"relation {key!r}: edge_index must have shape (2, E), got {tuple(index.shape)}"
        )
    plain = index.detach()
    if type(index) is not Tensor and not torch.compiler.is_exporting():  # which has its own class
        plain = plain.as_subclass(Tensor)
    return plain[1], plain[0], None


def hetero_data_parts(
    data: Any,
) -> tuple[dict[RelationKey, Tensor], dict[str, int], dict[RelationKey, Tensor]]:
    """The arguments of `from_edge_index` for a PyG `HeteroData`."""
    node_types, edge_types = data.metadata()
    counts = {kind: data[kind].num_nodes for kind in node_types}
    index: dict[RelationKey, Tensor] = {}
    weight: dict[RelationKey, Tensor] = {}
    for kind in edge_types:
        name = "adj_t" if "adj_t" in data[kind] else "edge_index"
        if name not in data[kind]:
            raise ValueError(f"edge type {kind!r} has neither edge_index nor adj_t")
        index[kind] = data[kind][name]
        if "edge_weight" in data[kind]:
            weight[kind] = data[kind].edge_weight
        elif "edge_attr" in data[kind]:
            raise ValueError(
                f"edge type {kind!r} has edge_attr, which would be ignored: make it a weight (E,), "
                "edge_weight, or leave it out"
            )
    return index, counts, weight


def dgl_parts(graph: Any) -> tuple[dict[RelationKey, Tensor], dict[str, int]]:
    """The edge_index tensors and node counts of a DGL graph."""
    counts = {kind: graph.num_nodes(kind) for kind in graph.ntypes}
    index: dict[RelationKey, Tensor] = {
        kind: torch.stack(graph.edges(etype=kind)) for kind in graph.canonical_etypes
    }
    return index, counts


def _common_size(matrices: Mapping[RelationKey, Matrix]) -> int:
    for key, matrix in matrices.items():
        if not isinstance(key, str):
            raise ValueError(f"relation {key!r} is typed: give num_nodes for every node type")
        return matrix.shape[0]
    raise ValueError("without relations the number of nodes is unknown: give num_nodes")


def _ends(key: RelationKey, slices: Mapping[str, slice]) -> tuple[slice, slice]:
    """The global ids of a relation's receiving and sending nodes."""
    relation_name(key)  # refuses a key of another form
    source, target = ("node", "node") if isinstance(key, str) else (key[0], key[2])
    for kind in (source, target):
        if kind not in slices:
            raise ValueError(f"relation {key!r}: node type {kind!r} is not among {list(slices)}")
    return slices[target], slices[source]


def _require_matrix(key: RelationKey, shape: Sequence[int]) -> None:
    if len(shape) != 2:
        raise ValueError(f"relation {key!r}: expected a matrix, got shape {tuple(shape)}")


def _edges(
    key: RelationKey,
    row: Tensor,
    col: Tensor,
    value: Tensor | None,
    rows: slice,
    cols: slice,
    may_learn: bool = False,
) -> Edges:
    """Check local ids and values."""
    if value is not None and not may_learn:
        _require_constant(key, value)
    if row.shape != col.shape:
        raise ValueError(f"relation {key!r}: {len(row)} receiving but {len(col)} sending nodes")
    row, col = (
        require_ids(f"relation {key!r}: {what} node", index, ids.stop - ids.start)
        .cpu()
        .contiguous()
        for what, index, ids in (("receiving", row, rows), ("sending", col, cols))
    )
    given = None if value is None else _checked_values(key, value, row.numel())
    dtype = value.dtype if value is not None and value.is_floating_point() else None
    ones = given is None or (not given.requires_grad and bool((given == 1).all()))
    return Edges(relation_name(key), row, col, rows, cols, None if ones else given, dtype)


def _require_constant(key: RelationKey, values: Tensor) -> None:
    if values.requires_grad:
        raise ValueError(
            f"the values of relation {key!r} require grad: build the graph from them detached, and "
            "give values that learn to RelationGraph.with_values"
        )


def _checked_values(key: RelationKey, value: Tensor, num_edges: int) -> Tensor:
    """The values as float64, on the CPU."""
    if not isinstance(value, Tensor):
        raise TypeError(f"relation {key!r}: values must be a tensor, got {type(value)}")
    if tuple(value.shape) != (num_edges,):
        raise ValueError(
            f"relation {key!r}: expected one value for each of {num_edges} edges, got shape "
            f"{tuple(value.shape)}"
        )
    if value.is_complex():
        raise TypeError(f"relation {key!r}: values must be real, got {value.dtype}")
    value = value.cpu().double()
    if not bool(value.isfinite().all()):
        raise ValueError(f"relation {key!r}: values must be finite, got NaN or infinity")
    return value
