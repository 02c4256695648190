"""More labels than the split has: what the number of labels is worth."""

from __future__ import annotations

from dataclasses import replace

import torch

from tensus_tn.data import Dataset, NodeLabels


def with_more_labels(data: Dataset, count: int, seed: int) -> Dataset:
    """The data with `count` training nodes: some of the test nodes, by the seed, become such."""
    assert isinstance(data.target, NodeLabels)
    nodes = data.target.nodes
    order = torch.randperm(len(nodes["test"]), generator=torch.Generator().manual_seed(seed))
    moved = count - len(nodes["train"])
    taken, left = nodes["test"][order[:moved]], nodes["test"][order[moved:]]
    if moved < 0 or not len(left):
        raise ValueError(f"{count} of {len(nodes['train'])} + {len(order)} nodes can't be trained")
    split = {**nodes, "train": torch.cat([nodes["train"], taken]), "test": left}
    return replace(data, target=replace(data.target, nodes=split))
