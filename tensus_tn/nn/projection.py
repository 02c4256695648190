"""Linear maps for each node type, from inputs in whatever form to one matrix of all nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensus_tn._arguments import check_memory, check_size
from tensus_tn._torch_modes import inspectable
from tensus_tn.nn.sparse_features import sparse_product
from tensus_tn.propagation.node_ids import require_ids

T = TypeVar("T")


class NodeInputs(NamedTuple, Generic[T]):
    """Several inputs of the nodes of a type: features, ids, and what is computed from the graph.

    Each of these three has a linear map of its own, and all are added up.

    Their tensors, or their sizes; None for what there is not.

    Attributes:
        features: As the data have them (n, size), dense or sparse.
        id: Integers (n,) below the size.
        degree: Of log degrees (n, size).
        spectral: An embedding (n, size) that is computed, not learned.

    Example:
        >>> sizes = {"user": NodeInputs(id=3, degree=2)}
        >>> x = {"user": NodeInputs(id=torch.arange(3), degree=torch.ones(3, 2))}
        >>> [h.shape for h in Projections(sizes, 8)(x)]
        [torch.Size([3, 8])]
    """

    features: T | None = None
    id: T | None = None
    degree: T | None = None
    spectral: T | None = None

    def present(self) -> dict[str, T]:
        """Those that there are, by name."""
        return {name: value for name, value in self._asdict().items() if value is not None}


#: Dense or sparse features (n, size); ids (n,) of one-hot features, integers below the size; or both.
Features = Mapping[str, Tensor | NodeInputs[Tensor]]
Sizes = Mapping[str, int | NodeInputs[int]]


class Projection(nn.Linear):
    """A linear map that also takes sparse matrices, and ids in the place of one-hot rows.

    Example:
        >>> project = Projection(3, 2)
        >>> ids = torch.tensor([2, 0])
        >>> bool(torch.allclose(project(ids), project(torch.eye(3)[ids])))
        True
    """

    def forward(self, x: Tensor, dropout: float = 0.0) -> Tensor:
        """(n, out_features) from (n, in_features), or from ids (n,).

        Dropout is of features, of the non-zeros where these are sparse; or of what ids become.
        """
        if x.ndim == 1 and not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool):
            y = F.embedding(require_ids("feature id", x, self.in_features), self.weight.t())
            return F.dropout(self._shifted(y), dropout)
        check_features("features", x, self.in_features)
        if x.layout == torch.strided:
            return F.linear(F.dropout(x, dropout), self.weight, self.bias)
        return self._shifted(sparse_product(x, self.weight.t(), dropout))

    def _shifted(self, y: Tensor) -> Tensor:
        return y if self.bias is None else y + self.bias


class LazyProjection(nn.LazyLinear, Projection):
    """A `Projection` that takes its input size from the first features that it sees."""

    cls_to_become = Projection

    def initialize_parameters(self, x: Tensor, dropout: float = 0.0) -> None:
        """Make the parameters, for features like these; the arguments are those of `forward`."""
        if x.ndim != 2:
            raise ValueError(
                f"a size of -1 is read off features (nodes, size), got {tuple(x.shape)}: ids need "
                "the number of different ones"
            )
        super().initialize_parameters(x)


def check_channels(what: str, size: Any) -> int:
    """Return a size of features, or -1 for one that the first features tell."""
    return -1 if isinstance(size, int) and size == -1 else check_size(what, size)


class Projections(nn.Module):
    """One `Projection` for each node type, or for each input of a type that has several.

    Args:
        in_channels: The feature size of every node type, in the order of a graph's nodes; -1 for a
            size that the first features tell.
        out_channels: The common size that they are mapped to.
        bias: Whether there is one, for each type.
    """

    def __init__(self, in_channels: Sizes, out_channels: int, bias: bool = True) -> None:
        super().__init__()
        self.node_types, self.out_channels = tuple(in_channels), out_channels
        sizes = {kind: _check_sizes(kind, size) for kind, size in in_channels.items()}
        weights = sum(map(sum, sizes.values())) * check_size("out_channels", out_channels)
        check_memory("weights", weights, torch.get_default_dtype())
        self.maps = nn.ModuleList(
            _maps(size, out_channels, bias)
            if isinstance(size, NodeInputs)
            else _map(size, out_channels, bias)
            for size in in_channels.values()
        )

    def forward(self, x: Features, dropout: float = 0.0) -> list[Tensor]:
        """The mapped features (n_t, out_channels) of every node type, in order.

        A type that is not in `x` has no nodes. Dropout is of features; of the vectors that ids
        become; and not of degrees and embeddings.
        """
        first = next(self.parameters())
        none = torch.empty(0, self.out_channels, dtype=first.dtype, device=first.device)
        return [
            _mapped(maps, x[kind], dropout) if kind in x else none
            for kind, maps in zip(self.node_types, self.maps, strict=True)
        ]


def _check_sizes(kind: str, size: int | NodeInputs[int]) -> list[int]:
    if not isinstance(size, NodeInputs):
        return [check_channels(f"in_channels of {kind!r}", size)]
    if not size.present():
        raise ValueError(f"node type {kind!r} has no inputs")
    return [check_size(f"size of {key!r} of {kind!r}", n) for key, n in size.present().items()]


def _map(size: int, out_channels: int, bias: bool) -> Projection:
    if size == -1:
        return LazyProjection(out_channels, bias=bias)
    return Projection(size, out_channels, bias=bias)


def _maps(sizes: NodeInputs[int], out_channels: int, bias: bool) -> nn.ModuleDict:
    parts = {"features": sizes.features, "id": sizes.id}
    computed = [size for size in (sizes.degree, sizes.spectral) if size is not None]
    parts["computed"] = sum(computed) or None
    present = {name: size for name, size in parts.items() if size is not None}
    first = next(iter(present))
    return nn.ModuleDict(
        {
            name: Projection(size, out_channels, bias=bias and name == first)
            for name, size in present.items()
        }
    )


def _mapped(maps: nn.Module, x: Tensor | NodeInputs[Tensor], dropout: float) -> Tensor:
    """The features of a type by its map, or the sum of its inputs by theirs."""
    if isinstance(maps, Projection):
        return _project(maps, cast(Tensor, x), dropout)
    maps, inputs = cast(nn.ModuleDict, maps), cast("NodeInputs[Tensor]", x)
    parts = {"features": inputs.features, "id": inputs.id}
    computed = [part for part in (inputs.degree, inputs.spectral) if part is not None]
    parts["computed"] = torch.cat(computed, 1) if computed else None
    present = {name: part for name, part in parts.items() if part is not None}
    if present.keys() != maps.keys():
        raise ValueError(f"expected the inputs {list(maps)}, got {list(present)}")
    shares = {"features": dropout, "id": dropout, "computed": 0.0}
    mapped = [_project(maps[name], part, shares[name]) for name, part in present.items()]
    return torch.stack(mapped).sum(0)


def _project(project: nn.Module, x: Tensor, dropout: float) -> Tensor:
    if not isinstance(x, Tensor):
        raise TypeError(f"features must be a tensor, got {type(x).__name__}")
    y: Tensor = project(x, dropout)
    return y


def check_node_types(x: Mapping[str, object], node_types: tuple[str, ...]) -> None:
    """Check that there is something for every node type, and nothing else."""
    if set(x) != set(node_types):
        raise ValueError(f"expected features of the node types {list(node_types)}, got {list(x)}")


def known_features(x: Features, node_types: tuple[str, ...]) -> dict[str, Any]:
    """The features in the order of the node types, some of which may be missing, as in a batch."""
    if not x or not set(x) <= set(node_types):
        raise ValueError(f"expected features of the node types {list(node_types)}, got {list(x)}")
    for kind, h in x.items():
        num_nodes(kind, h)
    return {kind: x[kind] for kind in node_types if kind in x}


def num_nodes(kind: str, x: object) -> int:
    """How many nodes the features of a type, or its several inputs, are of."""
    first = next(iter(x.present().values()), None) if isinstance(x, NodeInputs) else x
    if not isinstance(first, Tensor):
        raise TypeError(f"features of {kind!r} must be a tensor, got {type(first).__name__}")
    return len(first)


def check_features(what: str, x: Tensor, channels: int) -> None:
    """Check the shape of features, and that they are finite unless they were computed here.

    `channels` of -1 are any number.
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"{what} must be a tensor, got {type(x).__name__}")
    if x.ndim != 2 or (channels != -1 and x.shape[1] != channels):
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
