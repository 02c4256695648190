"""Networks under the same protocol: GCN, GAT, RGCN, HGT and HAN of PyG, and MAGNN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, HANConv, HGTConv, RGCNConv
from torch_geometric.transforms import AddMetaPaths

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
    layers = [HGTConv(size, size, graph.metadata(), HEADS) for _ in range(2)]
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
