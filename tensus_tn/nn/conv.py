"""MetaGraphConv: a graph layer that learns which relations to combine, and how."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensus_tn._arguments import check_memory, check_share, check_size
from tensus_tn.dag import Dag, Edge
from tensus_tn.explorer.page import View, write_page
from tensus_tn.network.structure import Rank, Ties
from tensus_tn.network.tensor import DagTensor
from tensus_tn.nn import learned
from tensus_tn.nn.convert import features_and_graph, to_relation_graph
from tensus_tn.nn.drawn import Draw, check_sampling
from tensus_tn.nn.explore import NodeNames, meta_graph_view
from tensus_tn.nn.fixed import FixedMetaGraphs
from tensus_tn.nn.meta_graph import MetaGraph, MetaPath
from tensus_tn.nn.projection import (
    Features,
    Projections,
    check_channels,
    check_features,
    check_node_types,
    known_features,
    num_nodes,
)
from tensus_tn.nn.schema import EdgeType, Metadata, Schema
from tensus_tn.nn.search import MetaGraphSearch, propagate_heads
from tensus_tn.propagation.assembly import Normalize
from tensus_tn.propagation.graph_part import GraphPart, checking
from tensus_tn.propagation.relation_graph import RelationGraph

EdgeWeights = Mapping[EdgeType, Tensor] | None
Norm = Callable[[int], nn.Module]
Activation = Callable[[Tensor], Tensor]

#: Far below the weight of any path that counts: so the state is zero where no path arrives.
_NO_PATH = 1e-6


class MetaGraphConv(nn.Module):
    """A layer that propagates features along a learned distribution over meta-graphs.

        Y = activation(norm(E_{i ~ T}[M_i] (X Theta + b)))

    where `M_i` adds up the products of relations along all paths of the meta-graph `i`, and the
    distribution `T` is a `DagTensor`, the attribute `tensor`.

    It learns in one of three ways. *Soft*: called as it is, it weighs all relations. *Sampled*:
    called with `draw=conv.sample(...)`, it follows one relation per link. *Derived*:
    `conv.derive()` is the same layer over the best meta-graph, or the best few, alone.

    Args:
        in_channels: The size of the input features, shared by all node types as their affine map is;
            or a mapping from every node type to its size, each with a map of its own. -1 is read off
            the first features: as the only size, it is that of each node type that the metadata name.
        out_channels: The size of the output features.
        metadata: PyG's `(node_types, edge_types)`; or the names of a graph's relations, with
            `{name: (source type, destination type)}` where the types are known.
        heads: Independent distributions, each over its share of the features.
        target: The node type of interest: links into the sink choose only relations that end in it.
        dag: States and links; `Dag.complete(4)`, as in DiffMG, when None.
        rank: The rank of the inner states; 1 is DiffMG on a complete DAG, GTN on a path.
        ties: `"node"` is TENSUS, `"global"` is CP.
        choices: The names of the relations that links may choose, where they differ from those of
            DiffMG's search space (see `Schema.choices`).
        dropout: On the input, unless it is sparse or ids.
        norm: Makes the normalisation of the output, called with `out_channels`: `nn.LayerNorm`.
        activation: After it, for example `F.gelu`.
        affine: Whether there is an affine map before the propagation; where types have sizes of their
            own there always is.
        bias: Whether the affine map has one.
        divide: Whether states are divided by what a column of ones becomes by the same propagation.
            Then they are means over all paths that arrive at a node, whose weights sum to one
            whatever types the relations join. On relations that are not normalised
            (`normalize=None`), this is GTN's normalisation after the product.
        init_scale: The standard deviation of the initial logits; DiffMG has 0.001.
        normalize: How the relations of a PyG or DGL graph are normalised, as for `RelationGraph`.
        self_loops: Whether these relations get self-loops, as for `RelationGraph`.

    Example:
        >>> import torch
        >>> edges = {"AP": torch.tensor([[0, 1], [2, 2]]), "PA": torch.tensor([[2, 2], [0, 1]])}
        >>> g = RelationGraph.from_edge_index(edges, 3, normalize="row", identity=True, zero=True)
        >>> conv = MetaGraphConv(4, 8, metadata=["AP", "PA"], dag=Dag.complete(2), rank=2)
        >>> conv(torch.randn(3, 4), g).shape
        torch.Size([3, 8])
        >>> conv.tensor.top_k(1).index.shape  # one choice for each link
        torch.Size([1, 3])
        >>> conv.derive()(torch.randn(3, 4), g).shape
        torch.Size([3, 8])
    """

    def __init__(
        self,
        in_channels: int | Mapping[str, int],
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
        affine: bool = True,
        bias: bool = True,
        divide: bool = False,
        init_scale: float = 0.1,
        normalize: Normalize = "row",
        self_loops: bool = True,
    ) -> None:
        super().__init__()
        check_size("out_channels", out_channels)
        if out_channels % check_size("heads", heads):
            raise ValueError(f"out_channels ({out_channels}) must be a multiple of heads ({heads})")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.schema, self.target = Schema.of(metadata), target
        self.normalize, self.self_loops, self.divide = normalize, self_loops, divide
        self.dropout, self.activation = check_share("dropout", dropout), activation
        self.lin: nn.Module
        if affine and in_channels == -1 and self.schema.node_types:
            in_channels = dict.fromkeys(self.schema.node_types, -1)
        if isinstance(in_channels, Mapping):
            kinds = self.schema.node_types
            check_node_types(in_channels, kinds)
            sizes = {kind: in_channels[kind] for kind in kinds}
            self.lin = Projections(sizes, out_channels, bias)
        elif affine and check_channels("in_channels", in_channels) == -1:
            self.lin = nn.LazyLinear(out_channels, bias=bias)
        elif affine:
            check_memory("weights", in_channels * out_channels, torch.get_default_dtype())
            self.lin = nn.Linear(in_channels, out_channels, bias=bias)
        elif in_channels != out_channels:
            raise ValueError(
                f"without an affine map in_channels ({in_channels}) must be out_channels "
                f"({out_channels})"
            )
        else:
            self.lin = nn.Identity()
        dag = Dag.complete(4) if dag is None else dag
        allowed = self.schema.choices(dag, target, choices or {})
        self.heads = nn.ModuleList(
            MetaGraphSearch(
                dag, allowed, self.schema.relations, rank, ties=ties, init_scale=init_scale
            )
            for _ in range(heads)
        )
        self.norm = None if norm is None else norm(out_channels)

    @property
    def tensor(self) -> DagTensor:
        """The distribution over meta-graphs, that of the first head."""
        return self._search(0).tensor

    def arch_parameters(self) -> list[nn.Parameter]:
        """The logits of the distributions over meta-graphs.

        Example:
            >>> conv = MetaGraphConv(4, 8, ["AP", "PA"], dag=Dag.path(2), rank=2)
            >>> [tuple(p.shape) for p in conv.arch_parameters()]
            [(3, 1, 2), (3, 2, 1)]
        """
        return list(self.heads.parameters())

    def weight_parameters(self) -> list[nn.Parameter]:
        """All other parameters: the affine map and the normalisation."""
        return [p for name, p in self.named_parameters() if not name.startswith("heads.")]

    def reset_parameters(self) -> None:
        """Draw new initial values of all parameters."""
        reset_parts(self)

    def sample(
        self,
        *,
        epsilon: float | None = None,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> list[Draw]:
        """Draw one relation for each link, for `conv(x, graph, draw=...)`; one draw for each head.

        Args:
            epsilon: With this probability all links choose at random, otherwise each chooses its
                best (DiffMG), given the ranks, which are drawn. A choice's weight is its
                probability. None draws from the distribution itself, with straight-through Gumbel
                gradients.
            temperature: The temperature of the relaxation, where epsilon is None.
            generator: For the draws.

        Example:
            >>> conv = MetaGraphConv(4, 8, ["AP", "PA"], dag=Dag.path(2), rank=2)
            >>> conv.sample(epsilon=0.3)[0].choice.keys()
            dict_keys([(0, 1), (1, 2)])
        """
        check_sampling(epsilon, temperature)
        how: Literal["best", "uniform", "gumbel"] = "gumbel" if epsilon is None else "best"
        if epsilon is not None and float(torch.rand((), generator=generator)) < epsilon:
            how = "uniform"
        return [
            self._search(k).sample(how, temperature=temperature, generator=generator)
            for k in range(len(self.heads))
        ]

    def meta_graph(self, head: int = 0) -> MetaGraph:
        """The most probable meta-graph.

        Example:
            >>> conv = MetaGraphConv(4, 8, {"PA": ("A", "P"), "AP": ("P", "A")}, dag=Dag.path(2))
            >>> type(conv.meta_graph()).__name__
            'MetaGraph'
        """
        return self.meta_graphs(1, head)[0]

    def meta_graphs(self, k: int, head: int = 0) -> list[MetaGraph]:
        """The `k` most probable meta-graphs, best first; those of a derived layer are its own.

        Example:
            >>> conv = MetaGraphConv(4, 8, ["AP", "PA"], dag=Dag.path(2))
            >>> best, second = conv.meta_graphs(2)
            >>> best.probability >= second.probability
            True
        """
        module = self.heads[head]
        if isinstance(module, FixedMetaGraphs):
            check_size("k", k)
            return list(module.meta_graphs[:k])
        return learned.meta_graphs(self._search(head).tensor, k, self.schema.edge_types)

    def meta_paths(self, k: int, head: int = 0) -> list[MetaPath]:
        """The `k` meta-paths with the largest coefficients in the expected propagation.

        Only those whose node types join, where these are known; self-loops are no paths.

        Example:
            >>> conv = MetaGraphConv(4, 8, {"PA": ("A", "P"), "AP": ("P", "A")}, dag=Dag.path(2))
            >>> sorted(str(path) for path in conv.meta_paths(5))[:3]
            ['A -PA-> P', 'A -PA-> P -AP-> A', 'P -AP-> A']
        """
        return learned.meta_paths(self._search(head).tensor, k, self.schema.edge_types)

    def explore(
        self,
        path: str | os.PathLike[str],
        *,
        k: int = 100,
        graph: RelationGraph | None = None,
        node_names: NodeNames | None = None,
    ) -> None:
        """Write a page to look at what was learned: click a relation, see what the others become.

        Args:
            path: The HTML file. It needs nothing else, and no network.
            k: How many of the best meta-graphs it lists, for each head.
            graph: Where to look for instances of them.
            node_names: The names of the nodes, by type, for these instances.

        Example:
            >>> conv = MetaGraphConv(4, 8, {"PA": ("A", "P"), "AP": ("P", "A")}, dag=Dag.path(2))
            >>> path = getfixture("tmp_path") / "learned.html"
            >>> conv.explore(path)
            >>> path.read_text()[:15]
            '<!doctype html>'
        """
        write_page(path, self.views(k, graph, node_names))

    def views(
        self,
        k: int,
        graph: RelationGraph | None = None,
        node_names: NodeNames | None = None,
        name: str = "",
    ) -> list[View]:
        """What `explore` shows, a view for each head, for a page with more than this layer."""
        titles = (
            [name]
            if len(self.heads) == 1
            else [f"{name} head {head}".strip() for head in range(len(self.heads))]
        )
        return [
            meta_graph_view(
                title, self._search(head).tensor, k, self.schema.edge_types, graph, node_names
            )
            for head, title in enumerate(titles)
        ]

    def derive(self, k: int = 1) -> MetaGraphConv:
        """This layer, with its weights, over its best `k` meta-graphs alone.

        The shares of several are learned further. Call `reset_parameters` on the result to train
        its weights from scratch, as DiffMG does.

        Example:
            >>> conv = MetaGraphConv(4, 8, ["AP", "PA"], dag=Dag.path(2)).derive(3)
            >>> [tuple(p.shape) for p in conv.arch_parameters()]  # of the mixture
            [(3,)]
        """
        return self.fix(*(self.meta_graphs(k, head) for head in range(len(self.heads))))

    def fix(self, *meta_graphs: MetaGraph | Sequence[MetaGraph]) -> MetaGraphConv:
        """This layer, with its weights, over given meta-graphs alone.

        Args:
            meta_graphs: For each head, or once for all, one meta-graph or several to mix.

        Example:
            >>> conv = MetaGraphConv(4, 8, ["AP", "PA"])
            >>> print(conv.fix(MetaGraph(Dag.path(2), {(0, 1): "PA", (1, 2): "AP"})).meta_graph())
            -PA-> -AP->
        """
        if len(meta_graphs) not in (1, len(self.heads)):
            raise ValueError(f"{len(self.heads)} heads, but meta-graphs for {len(meta_graphs)}")
        several = [[m] if isinstance(m, MetaGraph) else m for m in meta_graphs]
        each = several * (len(self.heads) // len(several))
        conv = copy.deepcopy(self)
        conv.heads = nn.ModuleList(FixedMetaGraphs(m, self.schema.relations) for m in each)
        first = next(self.parameters())
        return conv.to(device=first.device, dtype=first.dtype).train(self.training)

    def relation_graph(
        self,
        edges: Any,
        num_nodes: Mapping[str, int] | None = None,
        edge_weight_dict: EdgeWeights = None,
    ) -> RelationGraph:
        """What `forward` makes of a PyG or DGL graph: see `set_graph_cache_size`.

        Args:
            edges: A `HeteroData`, a DGL graph, or an `edge_index_dict` with `num_nodes`.
            num_nodes: The number of nodes of every type.
            edge_weight_dict: The weights of the edges, as in `forward`.

        Example:
            >>> edges = {("a", "to", "b"): torch.tensor([[0, 1], [0, 0]])}
            >>> conv = MetaGraphConv(4, 8, (["a", "b"], list(edges)))
            >>> conv.relation_graph(edges, {"a": 2, "b": 1})
            RelationGraph(3 nodes, 2 edges, 3 relations: a__to__b 2 + loops, identity, zero)
        """
        first = next(self.parameters())
        dtype = torch.float64 if first.dtype == torch.float64 else torch.float32
        return to_relation_graph(
            edges,
            num_nodes,
            self.schema,
            weights=edge_weight_dict,
            normalize=self.normalize,
            self_loops=self.self_loops,
            dtype=dtype,
            device=first.device,
        )

    @overload
    def forward(
        self,
        x: Tensor,
        graph: RelationGraph | GraphPart,
        *,
        draw: Sequence[Draw] | None = None,
        rows: Tensor | slice | None = None,
    ) -> Tensor: ...
    @overload
    def forward(
        self,
        x: Any,
        graph: Any = None,
        edge_weight_dict: EdgeWeights = None,
        *,
        draw: Sequence[Draw] | None = None,
    ) -> dict[str, Tensor]: ...
    def forward(
        self,
        x: Any,
        graph: Any = None,
        edge_weight_dict: EdgeWeights = None,
        *,
        draw: Sequence[Draw] | None = None,
        rows: Tensor | slice | None = None,
    ) -> Tensor | dict[str, Tensor]:
        """New features of all nodes.

        Args:
            x: Features (N, in_channels), or a dict of those of every node type; or a `HeteroData`
                that has them, and the graph too.
            graph: A `RelationGraph`; with a dict of features also PyG's `edge_index_dict` (of
                tensors, `EdgeIndex`, or transposed sparse matrices, `adj_t`) or `HeteroData`, or
                a DGL graph. Node and edge types of the metadata may be missing, edge types that
                are not in it are ignored.
            edge_weight_dict: Weights (E,) of edges, by type, in the place of ones: values before
                `normalize`. They may learn.
            draw: What `sample` returned, to follow only the relations drawn.
            rows: With a matrix of features, the nodes of interest: a slice, or ids in any order.
                Only they are returned, and only what they depend on is computed.

        Returns:
            (N, out_channels), or as many as `rows` names; or a dict with the node types of `x`.
        """
        x, graph = features_and_graph(x, graph)
        if isinstance(x, Mapping):
            if rows is not None:
                raise ValueError("rows are of a matrix of features; a dict has every node type")
            return self._forward_types(x, graph, edge_weight_dict, draw)
        with checking(graph):
            if edge_weight_dict is not None:
                raise ValueError("edge_weight_dict goes with a dict of features and of edges")
            if isinstance(self.lin, Projections):
                raise TypeError("in_channels are those of node types: give features as a dict")
            check_features("features", x, self._channels)
            self._check_graph(graph)
        h = self.lin(F.dropout(x, self.dropout, self.training))
        if isinstance(rows, slice):
            rows = torch.arange(*rows.indices(graph.num_nodes), device=h.device)
        return self._finish(self._propagate(h, graph, draw, rows))

    @property
    def _channels(self) -> int:
        """The size of the features that one affine map takes; -1 while it is not known."""
        if isinstance(self.lin, nn.LazyLinear):
            return -1
        return self.lin.in_features if isinstance(self.lin, nn.Linear) else self.out_channels

    def _forward_types(
        self, x: Mapping[str, Tensor], graph: Any, weights: EdgeWeights, draw: Sequence[Draw] | None
    ) -> dict[str, Tensor]:
        kinds = self.schema.node_types
        if not kinds:
            raise ValueError("give metadata as (node_types, edge_types) for features by node type")
        with checking(graph):
            x = known_features(x, kinds)
            graph = self.graph_of(x, graph, weights)
            x = {
                kind: F.dropout(h, self.dropout, self.training)
                if h.is_floating_point() and h.layout == torch.strided
                else h
                for kind, h in x.items()
            }
            if isinstance(self.lin, Projections):
                h = torch.cat(self.lin(x))
            else:
                for kind in x:
                    check_features(f"features of {kind!r}", x[kind], self._channels)
                h = self.lin(torch.cat(list(x.values())))
        y = self._finish(self._propagate(h, graph, draw))
        return {kind: y[rows] for kind, rows in graph.node_types.items() if kind in x}

    def graph_of(
        self, x: Features, graph: Any, weights: EdgeWeights = None
    ) -> RelationGraph | GraphPart:
        """The graph as a `RelationGraph`, converted if it is not one, over the nodes of `x`.

        Its node types must stand in the order of the metadata; if that names none, in that of `x`.
        """
        sizes = {
            kind: num_nodes(kind, x[kind]) if kind in x else 0
            for kind in self.schema.node_types or x
        }
        converted: RelationGraph | GraphPart
        if isinstance(graph, RelationGraph | GraphPart):
            if weights is not None:
                raise ValueError("a RelationGraph has its values: give weights by with_values")
            converted = graph
        else:
            converted = self.relation_graph(graph, sizes, weights)
        self._check_graph(converted)
        counts = dict(converted.node_counts)
        typed = self.schema.node_types or list(counts) != ["node"]
        if typed and list(counts.items()) != list(sizes.items()):
            raise ValueError(f"features of {sizes} nodes, but the graph has {counts}")
        return converted

    def _propagate(
        self,
        h: Tensor,
        graph: RelationGraph | GraphPart,
        draw: Sequence[Draw] | None,
        rows: Tensor | None = None,
    ) -> Tensor:
        shares = h.chunk(len(self.heads), dim=-1)
        if self.divide:
            shares = tuple(torch.cat([part, part.new_ones(len(part), 1)], -1) for part in shares)
        parts = self._propagate_heads(shares, graph, draw, rows)
        if self.divide:
            parts = [part[:, :-1] / (part[:, -1:] + _NO_PATH) for part in parts]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    def _propagate_heads(
        self,
        shares: Sequence[Tensor],
        graph: RelationGraph | GraphPart,
        draw: Sequence[Draw] | None,
        rows: Tensor | None,
    ) -> list[Tensor]:
        """Heads that weigh all relations take one pass; draws and meta-graphs have their own each."""
        if draw is not None:
            with checking(graph):
                if len(draw) != len(self.heads):
                    raise ValueError(f"{len(self.heads)} heads, but {len(draw)} draws")
                searches = [self._search(k) for k in range(len(draw))]
            given = zip(searches, shares, draw, strict=True)
            return [search(part, graph, drawn, rows=rows) for search, part, drawn in given]
        searches = [head for head in self.heads if isinstance(head, MetaGraphSearch)]
        if len(searches) == len(self.heads):
            return propagate_heads(searches, shares, graph, rows)
        pairs = zip(self.heads, shares, strict=True)
        return [head(part, graph, rows=rows) for head, part in pairs]

    def _finish(self, y: Tensor) -> Tensor:
        y = y if self.norm is None else self.norm(y)
        return y if self.activation is None else self.activation(y)

    def _search(self, head: int) -> MetaGraphSearch:
        module = self.heads[head]
        if not isinstance(module, MetaGraphSearch):
            raise ValueError("a derived layer has its meta-graphs, but no distribution over them")
        return module

    def _check_graph(self, graph: RelationGraph | GraphPart) -> None:
        if not isinstance(graph, RelationGraph | GraphPart):
            raise TypeError(f"graph must be a RelationGraph, got {type(graph).__name__}")
        if graph.relation_names != self.schema.relations:
            raise ValueError(
                f"the layer is over the relations {list(self.schema.relations)}, the graph has "
                f"{list(graph.relation_names)}"
            )

    def extra_repr(self) -> str:
        """What `repr` shows before the parts."""
        return f"{self.in_channels}, {self.out_channels}, heads={len(self.heads)}"


def reset_parts(module: nn.Module) -> None:
    """Draw new initial values of the parameters of all parts of a module."""
    for part in module.modules():
        if part is not module and hasattr(part, "reset_parameters"):
            part.reset_parameters()  # type: ignore[operator]
