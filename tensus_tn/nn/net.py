"""MetaGraphNet: projections of the input, meta-graph layers, and a head for the task."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensus_tn._arguments import check_memory, check_share, check_size
from tensus_tn.dag import Dag
from tensus_tn.nn.conv import Activation, EdgeWeights, MetaGraphConv, Norm, reset_parts
from tensus_tn.nn.convert import features_and_graph
from tensus_tn.nn.drawn import Draw, check_sampling
from tensus_tn.nn.meta_graph import MetaGraph
from tensus_tn.nn.projection import (
    NodeInputs,
    Projections,
    Sizes,
    check_channels,
    check_node_types,
    known_features,
)
from tensus_tn.nn.schema import Metadata, Schema
from tensus_tn.propagation.graph_part import checking
from tensus_tn.propagation.node_ids import require_ids

#: One draw for each head of each layer.
Draws = Sequence[Sequence[Draw]]

#: DiffMG's network: `MetaGraphNet(..., **DIFFMG, state_dropout=0.3)`.
DIFFMG: Mapping[str, Any] = MappingProxyType(
    {
        "dag": Dag.complete(4),
        "rank": 1,
        "affine": True,
        "divide": False,
        "self_loops": True,
        "head": "linear",
        "dropout": 0.0,
        "norm": nn.LayerNorm,
        "activation": F.gelu,
        "init_scale": 0.001,
    }
)


class MetaGraphNet(nn.Module):
    """A network over one or several meta-graph layers, for the nodes of one type.

    A linear projection for each node type, `input_activation`, the layers (each with an affine map,
    but for the first, the propagation, norm and activation), and a head. The defaults train well as
    they are, with all relations weighted: let the cores (`arch_parameters`) learn ten times as
    fast as the weights, as `tensus_tn.tasks` does. With `**DIFFMG` it is DiffMG's network.

    Args:
        in_channels: The feature size of every node type, in the order of the graph's nodes (which
            is that of the metadata, where it names the node types); one number for all types; -1
            for a size that the first features tell; or the sizes of several inputs, as `NodeInputs`.
        hidden_channels: The size of all states.
        out_channels: The number of classes; None for no head, so that states come out.
        metadata: As for `MetaGraphConv`.
        target: The node type whose nodes come out.
        num_layers: Only the links into the sink of the last layer are bound to the target type.
        head: Two linear maps with a ReLU between them (`"mlp"`), or one (`"linear"`).
        dropout: On the features (of ids: on the vectors that they become), and on what enters the
            head.
        state_dropout: On what enters a layer, after the projection; in DiffMG the only one.
        input_activation: After the projection, for example `torch.tanh`.
        norm, activation: As for every layer; in the last one they see the target's nodes alone.
        dag: States and links of every layer; `Dag.path(4)` when None.
        affine: Whether the first layer has an affine map, too, as in DiffMG.
        divide, self_loops: As in `MetaGraphConv`, for every layer. With these defaults states are
            means over the paths that arrive, and a node is among its own neighbours by choice alone.
        options: Further ones of `MetaGraphConv`: rank, ties, heads, choices and so on.

    Example:
        >>> from tensus_tn import RelationGraph
        >>> edges = {("a", "to", "b"): torch.tensor([[0, 1], [0, 0]])}
        >>> g = RelationGraph.from_edge_index(edges, {"a": 2, "b": 1}, identity=True, zero=True)
        >>> net = MetaGraphNet({"a": 3, "b": 5}, 8, 2, (["a", "b"], list(edges)), target="b")
        >>> net({"a": torch.randn(2, 3), "b": torch.randn(1, 5)}, g).shape
        torch.Size([1, 2])
    """

    def __init__(
        self,
        in_channels: int | Sizes,
        hidden_channels: int,
        out_channels: int | None,
        metadata: Metadata | Schema,
        target: str,
        *,
        num_layers: int = 1,
        head: Literal["mlp", "linear"] = "mlp",
        dropout: float = 0.7,
        state_dropout: float = 0.0,
        input_activation: Activation | None = None,
        norm: Norm | None = None,
        activation: Activation | None = F.relu,
        dag: Dag | None = None,
        affine: bool = False,
        divide: bool = True,
        self_loops: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        schema = Schema.of(metadata)
        in_channels = _by_type(in_channels, schema)
        if target not in in_channels:
            raise ValueError(f"target {target!r} is not among the node types {list(in_channels)}")
        self.target, self.input_activation = target, input_activation
        self.dropout = check_share("dropout", dropout)
        if schema.node_types:
            check_node_types(in_channels, schema.node_types)
            in_channels = {kind: in_channels[kind] for kind in schema.node_types}
        self.project = Projections(in_channels, hidden_channels)
        self.convs = nn.ModuleList(
            MetaGraphConv(
                hidden_channels,
                hidden_channels,
                schema,
                target=target if layer == num_layers - 1 else None,
                dropout=state_dropout,
                norm=norm,
                activation=activation,
                affine=affine or layer > 0,
                dag=Dag.path(4) if dag is None else dag,
                divide=divide,
                self_loops=self_loops,
                **options,
            )
            for layer in range(check_size("num_layers", num_layers))
        )
        self.head = None if out_channels is None else make_head(head, hidden_channels, out_channels)

    @property
    def layers(self) -> list[MetaGraphConv]:
        """The meta-graph layers."""
        return [cast(MetaGraphConv, conv) for conv in self.convs]

    def arch_parameters(self) -> list[nn.Parameter]:
        """The logits of the distributions over meta-graphs, of all layers."""
        return [p for conv in self.layers for p in conv.arch_parameters()]

    def weight_parameters(self) -> list[nn.Parameter]:
        """All other parameters."""
        arch = {id(p) for p in self.arch_parameters()}
        return [p for p in self.parameters() if id(p) not in arch]

    def reset_parameters(self) -> None:
        """Draw new initial values of all parameters."""
        reset_parts(self)

    def sample(
        self,
        *,
        epsilon: float | None = None,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> Draws:
        """Draw one relation for each link of each layer, for `net(x, graph, draw=...)`.

        The arguments are those of `MetaGraphConv.sample`; the coin for epsilon is tossed once.
        """
        check_sampling(epsilon, temperature)
        if epsilon is not None:
            epsilon = float(torch.rand((), generator=generator) < epsilon)
        return [
            conv.sample(epsilon=epsilon, temperature=temperature, generator=generator)
            for conv in self.layers
        ]

    def meta_graph(self, layer: int = 0) -> MetaGraph:
        """The most probable meta-graph of a layer (of its first head)."""
        return self.layers[layer].meta_graph()

    def derive(self, k: int = 1) -> MetaGraphNet:
        """This network, with its weights, over the best `k` meta-graphs of each layer alone."""
        return self._with_layers([conv.derive(k) for conv in self.layers])

    def fix(self, *meta_graphs: MetaGraph | Sequence[MetaGraph]) -> MetaGraphNet:
        """This network, with its weights, over given meta-graphs alone: for each layer, one or several.

        Example:
            >>> from tensus_tn import Dag
            >>> net = MetaGraphNet({"a": 2, "b": 2}, 4, 2, {"AB": ("b", "a")}, "a", dag=Dag.path(1))
            >>> print(net.fix(MetaGraph(Dag.path(1), {(0, 1): "AB"})).meta_graph())
            -AB->
        """
        if len(meta_graphs) != len(self.layers):
            raise ValueError(f"{len(self.layers)} layers, but meta-graphs for {len(meta_graphs)}")
        pairs = zip(self.layers, meta_graphs, strict=True)
        return self._with_layers([conv.fix(chosen) for conv, chosen in pairs])

    def _with_layers(self, layers: Sequence[MetaGraphConv]) -> MetaGraphNet:
        net = copy.deepcopy(self)
        net.convs = nn.ModuleList(layers)
        return net

    def forward(
        self,
        x: Any,
        graph: Any = None,
        edge_weight_dict: EdgeWeights = None,
        *,
        draw: Draws | None = None,
        rows: Tensor | None = None,
    ) -> Tensor:
        """Class scores (or states) of the target nodes.

        Args:
            x: Features of every node type: (n, size), dense or sparse, or ids (n,) for one-hot ones,
                or several as `NodeInputs`; or a `HeteroData` that has them, and the graph too.
            graph: All relations over all nodes, in the order of `in_channels`: a `RelationGraph`;
                or what `MetaGraphConv` takes with a dict of features, to be converted.
            edge_weight_dict: As for `MetaGraphConv`.
            draw: What `sample` returned, to follow only the relations drawn.
            rows: Ids (B,) within the target type, to compute these alone; all if None.
        """
        x, graph = features_and_graph(x, graph)
        with checking(graph):
            if draw is not None and len(draw) != len(self.layers):
                raise ValueError(f"{len(self.layers)} layers, but draws for {len(draw)}")
            x = known_features(x, self.project.node_types)
            graph = self.layers[0].graph_of(x, graph, edge_weight_dict)
            parts = self.project(x, self.dropout if self.training else 0.0)
            place = self.project.node_types.index(self.target)
            start = sum(len(part) for part in parts[:place])
            wanted = (
                slice(start, start + len(parts[place]))
                if rows is None
                else require_ids(f"{self.target} node", rows, len(parts[place])) + start
            )
        h: Tensor = torch.cat(parts)
        h = h if self.input_activation is None else self.input_activation(h)
        for k, conv in enumerate(self.layers):
            drawn = None if draw is None else draw[k]
            last = k == len(self.layers) - 1
            h = conv(h, graph, draw=drawn, rows=wanted if last else None)
        return h if self.head is None else self.head(F.dropout(h, self.dropout, self.training))


def _by_type(in_channels: Any, schema: Schema) -> dict[str, int | NodeInputs[int]]:
    """The size of every node type; one number is that of all."""
    if isinstance(in_channels, Mapping):
        return dict(in_channels)
    check_channels("in_channels", in_channels)
    if not schema.node_types:
        raise TypeError(
            "in_channels must be a dict {node type: size} where the metadata do not list the node "
            f"types, got {in_channels!r}"
        )
    return dict.fromkeys(schema.node_types, in_channels)


def make_head(kind: Literal["mlp", "linear"], in_channels: int, out_channels: int) -> nn.Module:
    """From states to class scores."""
    width = in_channels + check_size("out_channels", out_channels)
    check_memory("weights of the head", in_channels * width, torch.get_default_dtype())
    if kind == "linear":
        return nn.Linear(in_channels, out_channels)
    if kind != "mlp":
        raise ValueError(f"head must be 'mlp' or 'linear', got {kind!r}")
    return nn.Sequential(
        nn.Linear(in_channels, in_channels), nn.ReLU(), nn.Linear(in_channels, out_channels)
    )
