"""Networks under the same protocol: GCN, GAT, RGCN, HGT and HAN of PyG, and MAGNN."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, HANConv, HGTConv, RGCNConv
from torch_geometric.transforms import AddMetaPaths
from torch_geometric.utils import softmax

from benchmarks.reproduce.magnn import Magnn
from tensus_tn.data import Dataset
from tensus_tn.nn.projection import Projections
from tensus_tn.tasks import Task

HEADS = 8
#: Of HAN and MAGNN: from the target type and back to it, as the relations that carry the features.
META_PATHS = {
    "dblp": [["PA", "AP"], ["PA", "CP", "PC", "AP"]],
    "acm": [["AP", "PA"], ["SP", "PS"]],
    "imdb": [["AM", "MA"], ["DM", "MD"]],
}

Parts = dict[str, Tensor]


class Homogeneous(nn.Module):
    """Two layers over all edges alike, or, for RGCN, with their relation as a number."""

    def __init__(self, data: Dataset, layers: list[nn.Module], typed: bool) -> None:
        super().__init__()
        edges = [relation.edges for relation in data.relations.values()]
        self.edges = torch.cat(edges, dim=1)
        self.kinds = torch.cat([torch.full((e.shape[1],), i) for i, e in enumerate(edges)])
        self.layers, self.typed = nn.ModuleList(layers), typed

    def forward(self, parts: dict[str, Tensor]) -> dict[str, Tensor]:
        h = torch.cat(list(parts.values()))
        for layer in self.layers:
            h = F.elu(layer(h, self.edges, self.kinds) if self.typed else layer(h, self.edges))
        sizes = [len(part) for part in parts.values()]
        return dict(zip(parts, h.split(sizes), strict=True))


class Heterogeneous(nn.Module):
    """Layers that take a dict of features and a dict of edges."""

    def __init__(self, edge_index: dict[Any, Tensor], layers: list[nn.Module]) -> None:
        super().__init__()
        self.edge_index, self.layers = edge_index, nn.ModuleList(layers)

    def forward(self, parts: dict[str, Tensor]) -> dict[str, Tensor]:
        for layer in self.layers:
            out = layer(parts, self.edge_index)  # types that receive nothing are left as they were
            parts = parts | {kind: h for kind, h in out.items() if h is not None}
        return parts


class QuickHGTConv(HGTConv):  # type: ignore[misc]
    """PyG's, with a product for each relation in the place of slices that are written one by one.

    The gradient of each such slice takes as much memory as all of them; there are heads x relations.
    """

    def _construct_src_node_feat(
        self, k_dict: Parts, v_dict: Parts, edge_index_dict: dict[Any, Tensor]
    ) -> tuple[Tensor, Tensor, dict[Any, int]]:
        """Keys and values of the nodes where the edges of a relation begin, and where each starts."""
        keys, values, offsets, total = [], [], {}, 0
        for kind in edge_index_dict:
            source, offsets[kind] = kind[0], total
            keys.append(self._transformed(k_dict[source], self.k_rel, kind))
            values.append(self._transformed(v_dict[source], self.v_rel, kind))
            total += len(keys[-1])
        return torch.cat(keys), torch.cat(values), offsets

    def _transformed(self, states: Tensor, linear: nn.Module, kind: Any) -> Tensor:
        """States (nodes, heads, dims), each head times a matrix of its own."""
        first, step = self.edge_types_map[kind], len(self.edge_types)
        return torch.einsum("nhi,hij->nhj", states, linear.weight[first::step])


class RelationHGTConv(QuickHGTConv):
    """A softmax over the edges of each relation by itself, and the sum over relations.

    PyG's layer was like that once, and DGL's example of HGT is, with a mean; a single softmax over all
    edges of a node, as in PyG today, is worse on four of the five data sets. The matrices of relations
    begin with Glorot's values, as in the code of HGT's authors: PyG's are smaller, and with them so
    are messages.
    """

    def reset_parameters(self) -> None:
        super().reset_parameters()
        for matrix in (*self.k_rel.weight, *self.v_rel.weight):
            nn.init.xavier_uniform_(matrix)

    def forward(self, x_dict: Parts, edge_index_dict: dict[Any, Tensor]) -> Any:
        sizes = torch.tensor([edges.shape[1] for edges in edge_index_dict.values()])
        self.kinds = torch.arange(len(sizes)).repeat_interleave(sizes)
        return super().forward(x_dict, edge_index_dict)

    def message(
        self, k_j: Tensor, q_i: Tensor, v_j: Tensor, edge_attr: Tensor, index: Tensor, size_i: int
    ) -> Tensor:
        scores = (q_i * k_j).sum(-1) * edge_attr / math.sqrt(q_i.shape[-1])
        groups, count = index * len(self.edge_types) + self.kinds, size_i * len(self.edge_types)
        weights = softmax(scores, groups, num_nodes=count)
        return (v_j * weights[..., None]).flatten(1)


class Peer(nn.Module):
    """Projections per node type, dropout, the layers, and a classifier or a dot product."""

    def __init__(self, task: Task, layers: nn.Module, hidden: int, dropout: float) -> None:
        super().__init__()
        spec = task.spec
        self.targets, self.dropout, self.layers = spec["targets"], dropout, layers
        self.project = Projections(spec["in_channels"], hidden)
        classes = spec["num_classes"]
        self.classifier = nn.Identity() if classes is None else nn.Linear(hidden, classes)

    def forward(self, x: dict[str, Tensor], graph: object, pairs: Tensor | None = None) -> Tensor:
        parts = [F.dropout(h, self.dropout, self.training) for h in self.project(x)]
        states = self.layers(dict(zip(x, parts, strict=True)))
        ends = [states[kind] for kind in self.targets]
        if pairs is None:
            scores: Tensor = self.classifier(ends[0])
            return scores
        products: Tensor = ends[0][pairs[0]] * ends[1][pairs[1]]
        return products.sum(-1)


def _gcn(data: Dataset, size: int) -> nn.Module:
    return Homogeneous(data, [GCNConv(size, size) for _ in range(2)], typed=False)


def _gat(data: Dataset, size: int) -> nn.Module:
    layers = [GATConv(size, size // HEADS, HEADS) for _ in range(2)]
    return Homogeneous(data, layers, typed=False)


def _rgcn(data: Dataset, size: int) -> nn.Module:
    layers = [RGCNConv(size, size, len(data.relations)) for _ in range(2)]
    return Homogeneous(data, layers, typed=True)


def _hgt(data: Dataset, size: int) -> nn.Module:
    graph = data.to_hetero_data()
    layers = [RelationHGTConv(size, size, graph.metadata(), HEADS) for _ in range(2)]
    return Heterogeneous(graph.edge_index_dict, layers)


def _han(data: Dataset, size: int) -> nn.Module:
    """Meta-paths by hand; of a node's many ends on one, 64 drawn at random are kept at most."""
    types = {name: (source, name, end) for name, (source, end) in data.metadata.items()}
    paths = [[types[name] for name in path] for path in META_PATHS[data.name]]
    graph = AddMetaPaths(paths, drop_orig_edge_types=True, max_sample=64)(data.to_hetero_data())
    return Heterogeneous(graph.edge_index_dict, [HANConv(size, size, graph.metadata(), HEADS)])


def _magnn(data: Dataset, size: int) -> nn.Module:
    return Magnn(data, META_PATHS[data.name], size)


PEERS: dict[str, Callable[[Dataset, int], nn.Module]] = {
    "gcn": _gcn,
    "gat": _gat,
    "rgcn": _rgcn,
    "hgt": _hgt,
    "han": _han,
    "magnn": _magnn,
}
