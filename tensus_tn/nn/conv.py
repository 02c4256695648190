"""MetaGraphConv: a graph layer that learns which relations to combine, and how."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensus_tn.checks import check_size
from tensus_tn.dag import Dag, Edge
from tensus_tn.nn.schema import Metadata, Schema
from tensus_tn.nn.search import MetaGraphSearch
from tensus_tn.relations import RelationGraph
from tensus_tn.structure import Rank, Ties
from tensus_tn.tensor import DagTensor

Norm = Callable[[int], nn.Module]
Activation = Callable[[Tensor], Tensor]


class MetaGraphConv(nn.Module):
    r"""A layer that propagates features along a learned distribution over meta-graphs.

    .. math::
        Y = \sigma(\mathrm{norm}(\mathbb{E}_{i \sim T}[\, M_i \,] \, (X \Theta + b)))

    where ``M_i`` adds up the products of relations along all paths of the meta-graph ``i``.

    Args:
        in_channels: Size of the input features.
        out_channels: Size of the output features.
        metadata: PyG's ``(node_types, edge_types)``; or the names of a graph's relations, with
            ``{name: (source type, destination type)}`` where the types are known.
        heads: Independent distributions, each over its share of the features.
        target: The node type of interest: links into the sink choose only relations that end in it.
        dag: States and links; `Dag.complete(4)`, as in DiffMG, when None.
        rank: Of the inner states; 1 is DiffMG on a complete DAG, GTN on a path.
        ties: `"node"` is TENSUS, `"global"` is CP.
        choices: The names of the relations that links may choose, where they differ from
            `Schema.choices`: links that are not named keep theirs.
        dropout: On the input.
        norm: Makes the normalisation of the output, called with ``out_channels``: `nn.LayerNorm`.
        activation: After it, for example `F.gelu`.
        bias: Whether the affine map has one.
        init_scale: The standard deviation of the initial logits; DiffMG has 0.001.

    Example:
        >>> import torch
        >>> edges = {"AP": torch.tensor([[0, 1], [2, 2]]), "PA": torch.tensor([[2, 2], [0, 1]])}
        >>> g = RelationGraph.from_edge_index(edges, 3, normalize="row", identity=True, zero=True)
        >>> conv = MetaGraphConv(4, 8, metadata=["AP", "PA"], dag=Dag.complete(2), rank=2)
        >>> conv(torch.randn(3, 4), g).shape
        torch.Size([3, 8])
        >>> conv.tensor.top_k(1).index.shape  # one choice for each link
        torch.Size([1, 3])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        metadata: Metadata | Schema,
        heads: int = 1,
        *,
        target: str | None = None,
        dag: Dag | None = None,
        rank: Rank = 2,
        ties: Ties = "node",
        choices: Mapping[Edge, Sequence[str]] | None = None,
        dropout: float = 0.0,
        norm: Norm | None = None,
        activation: Activation | None = None,
        bias: bool = True,
        init_scale: float = 0.1,
    ) -> None:
        super().__init__()
        check_size("out_channels", out_channels)
        if out_channels % check_size("heads", heads):
            raise ValueError(f"out_channels ({out_channels}) must be a multiple of heads ({heads})")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.schema, self.target = Schema.of(metadata), target
        dag = Dag.complete(4) if dag is None else dag
        allowed = {**self.schema.choices(dag, target), **(choices or {})}
        self.lin = nn.Linear(in_channels, out_channels, bias=bias)
        self.heads = nn.ModuleList(
            MetaGraphSearch(
                dag, allowed, self.schema.relations, rank, ties=ties, init_scale=init_scale
            )
            for _ in range(heads)
        )
        self.dropout = dropout
        self.norm = None if norm is None else norm(out_channels)
        self.activation = activation

    @property
    def tensor(self) -> DagTensor:
        """The distribution over meta-graphs (of the first head)."""
        return self.heads[0].tensor  # type: ignore[return-value]

    def arch_parameters(self) -> list[nn.Parameter]:
        """The logits of the cores; `weight_parameters` are all others."""
        return list(self.heads.parameters())

    def weight_parameters(self) -> list[nn.Parameter]:
        """The affine map and the normalisation."""
        arch = {id(p) for p in self.arch_parameters()}
        return [p for p in self.parameters() if id(p) not in arch]

    def reset_parameters(self) -> None:
        """Draw new initial values of all parameters."""
        for module in self.modules():
            if module is not self and hasattr(module, "reset_parameters"):
                module.reset_parameters()  # type: ignore[operator]

    def forward(self, x: Tensor, graph: RelationGraph) -> Tensor:
        """Features (N, out_channels) from (N, in_channels)."""
        x = F.dropout(x, self.dropout, self.training)
        parts = self.lin(x).chunk(len(self.heads), dim=-1)
        y = torch.cat([head(h, graph) for head, h in zip(self.heads, parts, strict=True)], dim=-1)
        y = y if self.norm is None else self.norm(y)
        return y if self.activation is None else self.activation(y)
