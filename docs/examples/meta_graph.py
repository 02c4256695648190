"""Learn a meta-graph in a training loop of your own, and draw it.

The labels of this graph need two relations to be chosen jointly (see `tensus_tn.data.planted`), which
rank 2 can do and rank 1 can't.
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F

from tensus_tn import Dag
from tensus_tn.data import planted
from tensus_tn.nn import DIFFMG, MetaGraph, MetaGraphNet


def main(figure: str = "", epochs: int = 100) -> dict[int, tuple[float, list[MetaGraph]]]:
    data = planted(num_nodes=1000)
    graph, x, target = data.graph("row"), data.inputs(), data.target
    sizes = {kind: features.shape[1] for kind, features in x.items()}
    first = data.slices["t"].start
    found = {}
    for rank in (1, 2):
        torch.manual_seed(0)
        settings = {**DIFFMG, "dag": Dag.path(2), "rank": rank, "init_scale": 0.1}
        net = MetaGraphNet(sizes, 16, 2, data.metadata, "t", **settings)
        optimizer = torch.optim.Adam(
            [
                {"params": net.weight_parameters(), "lr": 0.02},
                {"params": net.arch_parameters(), "lr": 0.1},
            ]
        )
        train, test = target.nodes["train"], target.nodes["test"]
        for _ in range(epochs):
            optimizer.zero_grad()
            F.cross_entropy(net(x, graph)[train - first], target.labels[train]).backward()
            optimizer.step()
        with torch.no_grad():
            right = net(x, graph)[test - first].argmax(1) == target.labels[test]
        found[rank] = right.float().mean().item(), net.layers[0].meta_graphs(2)
        print(f"rank {rank}: accuracy {found[rank][0]:.1%}")
        for meta_graph in found[rank][1]:
            print(f"    {meta_graph.probability:.1%}  {meta_graph}")
    if figure:
        draw(found[2][1], figure)
    return found


def draw(meta_graphs: list[MetaGraph], path: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 1.6), layout="constrained")
    for ax, meta_graph in zip(figure.subplots(1, len(meta_graphs)), meta_graphs, strict=True):
        meta_graph.draw(ax)
        ax.set_title(f"probability {meta_graph.probability:.2f}", fontsize=10)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", default="meta_graph.png")
    main(parser.parse_args().figure)
