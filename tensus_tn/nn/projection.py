"""A linear map for each node type, from features in whatever form to one matrix of all nodes."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensus_tn._torch_modes import inspectable
from tensus_tn.propagation.node_ids import require_ids

#: Dense or sparse features (n, size); ids (n,) of one-hot features, integers below the size.
Features = Mapping[str, Tensor]


class Projection(nn.Linear):
    """A linear map that also takes sparse matrices, and ids in the place of one-hot rows.

    Example:
        >>> project = Projection(3, 2)
        >>> ids = torch.tensor([2, 0])
        >>> bool(torch.allclose(project(ids), project(torch.eye(3)[ids])))
        True
    """

    def forward(self, x: Tensor) -> Tensor:
        """(n, out_features) from (n, in_features), or from ids (n,)."""
        if x.ndim == 1 and not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool):
            y = F.embedding(require_ids("feature id", x, self.in_features), self.weight.t())
        else:
            check_features("features", x, self.in_features)
            if x.layout == torch.strided:
                return F.linear(x, self.weight, self.bias)
            y = torch.sparse.mm(x, self.weight.t())
        return y if self.bias is None else y + self.bias


class Projections(nn.Module):
    """One `Projection` for each node type.

    Args:
        in_channels: The feature size of every node type, in the order of a graph's nodes.
        out_channels: The common size that they are mapped to.
        bias: Whether the maps have one.
    """

    def __init__(
        self, in_channels: Mapping[str, int], out_channels: int, bias: bool = True
    ) -> None:
        super().__init__()
        self.node_types = tuple(in_channels)
        self.maps = nn.ModuleList(
            Projection(size, out_channels, bias=bias) for size in in_channels.values()
        )

    def forward(self, x: Features) -> list[Tensor]:
        """The mapped features (n_t, out_channels) of every node type, in order."""
        return [project(x[kind]) for kind, project in zip(self.node_types, self.maps, strict=True)]


def drop_features(x: Tensor, p: float) -> Tensor:
    """Dropout of features in training: of all entries, or of the non-zeros of a sparse matrix.

    Ids stay as they are.

    Example:
        >>> drop_features(torch.eye(3).to_sparse(), 0.5).to_dense().count_nonzero() <= 3
        tensor(True)
    """
    if p == 0 or not x.is_floating_point():
        return x
    if x.layout == torch.strided:
        return F.dropout(x, p)
    if x.layout == torch.sparse_csr:
        kept = F.dropout(x.values(), p)
        return torch.sparse_csr_tensor(x.crow_indices(), x.col_indices(), kept, x.shape)
    coo = x.to_sparse_coo().coalesce()
    kept = F.dropout(coo.values(), p)
    return torch.sparse_coo_tensor(coo.indices(), kept, x.shape, is_coalesced=True)


def check_node_types(x: Mapping[str, object], node_types: tuple[str, ...]) -> None:
    """Check that there is something for every node type, and nothing else."""
    if set(x) != set(node_types):
        raise ValueError(f"expected features of the node types {list(node_types)}, got {list(x)}")


def check_features(what: str, x: Tensor, channels: int) -> None:
    """Check the shape of features, and that they are finite unless they were computed here."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{what} must be a tensor, got {type(x).__name__}")
    if x.ndim != 2 or x.shape[1] != channels:
        raise ValueError(f"{what} must have shape (nodes, {channels}), got {tuple(x.shape)}")
    if not x.is_floating_point():
        raise TypeError(f"{what} must be floating-point numbers, got {x.dtype}")
    if inspectable(x) and not x.requires_grad:
        values = x if x.layout == torch.strided else _values(x)
        # The sum of all is finite, unless one is not or the sum overflows.
        if not bool(values.sum().isfinite()) and not bool(values.isfinite().all()):
            raise ValueError(f"{what} contain NaN or infinity")


def _values(x: Tensor) -> Tensor:
    return (x.coalesce() if x.layout == torch.sparse_coo else x).values()
