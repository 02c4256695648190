"""Arrays from files: checked ids, and arrays over all nodes cut into the blocks that are the types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from tensus_tn.data.typing import NodeTypes
from tensus_tn.propagation.node_ids import type_slices

#: Features with fewer non-zeros than this are kept sparse: then their projection is faster.
SPARSE_BELOW = 1 / 12

#: Ids number the nodes, and no RelationGraph holds so many: its edges are sorted by 64-bit keys.
LARGEST_ID = 2**31 - 1

Ids = NDArray[np.int64]


def check_variant(node_types: str) -> None:
    """Refuse what is not one of the two variants of node types."""
    if node_types not in get_args(NodeTypes):
        raise ValueError(f"node_types must be one of {get_args(NodeTypes)}, got {node_types!r}")


def whole_numbers(what: str, numbers: Any) -> Ids:
    """Ids or classes from a file as integers; a fraction, a NaN or an absurd size is refused."""
    array = np.asarray(numbers)
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{what}: expected whole numbers, got {array.dtype}")
    fits = (array >= -LARGEST_ID) & (array <= LARGEST_ID) & (array == np.floor(array))
    if not fits.all():
        wrong = array[~fits][0]
        raise ValueError(f"{what}: expected whole numbers of at most {LARGEST_ID}, got {wrong}")
    return array.astype(np.int64)


def block_counts(node_type: Any, names: Sequence[str]) -> dict[str, int]:
    """The sizes of the node types from an array (N,) of their numbers, which must be ascending."""
    node_type = np.asarray(node_type)
    if node_type.ndim != 1 or not np.issubdtype(node_type.dtype, np.integer):
        raise ValueError(
            f"expected an integer node type for each node, got {node_type.dtype} {node_type.shape}"
        )
    if len(node_type) and (np.diff(node_type).min(initial=0) < 0 or node_type[0] < 0):
        raise ValueError("the nodes of a type must have consecutive ids, types in ascending order")
    found = np.bincount(node_type, minlength=len(names)).tolist()
    if len(found) != len(names):
        raise ValueError(f"expected {len(names)} node types ({', '.join(names)}), got {len(found)}")
    return dict(zip(names, found, strict=True))


def split_features(features: Any, counts: Mapping[str, int]) -> dict[str, Tensor]:
    """A feature matrix (N, F), dense or scipy sparse, as tensors (n, F) for each node type."""
    matrix = features if sp.issparse(features) else np.asarray(features)
    if matrix.ndim != 2 or matrix.shape[0] != sum(counts.values()):
        raise ValueError(
            f"expected features of {sum(counts.values())} nodes, got shape {matrix.shape}"
        )
    matrix = sp.csr_array(matrix)
    matrix.check_format(full_check=True)  # before anything sorts by indices that a file gave
    matrix = matrix.astype(np.float32)
    return {kind: sparse_or_dense(matrix[ids]) for kind, ids in type_slices(counts).items()}


def one_hot(count: int) -> Tensor:
    """The features of nodes that have none: their ids, as an identity matrix."""
    return sparse_or_dense(sp.eye_array(count, format="csr"))


def sparse_or_dense(matrix: sp.sparray) -> Tensor:
    """A scipy matrix as a tensor of float32, sparse if it has few enough non-zeros."""
    size = matrix.shape[0] * matrix.shape[1]
    if size == 0 or matrix.nnz >= SPARSE_BELOW * size:
        return torch.from_numpy(matrix.toarray().astype(np.float32))
    coo = matrix.tocoo()
    index = torch.from_numpy(np.stack(coo.coords).astype(np.int64))
    value = torch.from_numpy(coo.data.astype(np.float32))
    return torch.sparse_coo_tensor(
        index, value, coo.shape, is_coalesced=True, check_invariants=True
    )
