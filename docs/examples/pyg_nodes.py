"""Node classification in PyTorch Geometric: the same model with HGTConv and with MetaGraphConv.

The graph is `planted`, as a `HeteroData`. Its nodes `t` are two steps away from the only features that
count, so two layers of HGT are needed where one meta-graph layer has two links. It was made to show
what a joint choice of relations is good for: on other graphs expect other numbers.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import HGTConv, Linear

from tensus_tn import Dag
from tensus_tn.data import planted
from tensus_tn.nn import MetaGraphConv


class Model(nn.Module):
    def __init__(self, data: HeteroData, convs: list[nn.Module]) -> None:
        super().__init__()
        self.project = nn.ModuleDict(
            {kind: Linear(data[kind].num_features, 32) for kind in data.node_types}
        )
        self.convs, self.classify = nn.ModuleList(convs), Linear(32, 2)

    def forward(self, data: HeteroData) -> torch.Tensor:
        x = {kind: self.project[kind](data[kind].x) for kind in data.node_types}
        for conv in self.convs:
            new = conv(x, data.edge_index_dict)
            x = {kind: F.gelu(new[kind]) if kind in new else x[kind] for kind in x}
        return self.classify(x["t"])


def accuracy(data: HeteroData, convs: Callable[[], list[nn.Module]], epochs: int) -> float:
    torch.manual_seed(0)
    model = Model(data, convs())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    nodes = data["t"]
    for _ in range(epochs):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data)[nodes.train_mask], nodes.y[nodes.train_mask])
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        right = model(data).argmax(1) == nodes.y
    return right[nodes.test_mask].float().mean().item()


def main(epochs: int = 60) -> dict[str, float]:
    data = planted(num_nodes=1000).to_hetero_data()
    convs = {
        "HGTConv": lambda: [HGTConv(32, 32, data.metadata(), heads=2) for _ in range(2)],
        "MetaGraphConv": lambda: [
            MetaGraphConv(
                32, 32, data.metadata(), target="t", dag=Dag.path(2), rank=2, self_loops=False
            )
        ],
    }
    scores = {name: accuracy(data, make, epochs) for name, make in convs.items()}
    for name, score in scores.items():
        print(f"{name:14} test accuracy {score:.1%}")
    return scores


if __name__ == "__main__":
    main()
