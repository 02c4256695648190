"""metapath2vec by PyG: vectors of nodes from random walks, and logistic regression on them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch_geometric.nn import MetaPath2Vec

from tensus_tn.data import Dataset
from tensus_tn.tasks.metrics import f1
from tensus_tn.tasks.task import NodeClassification

SIZE, WALK, CONTEXT, BATCH, LR = 64, 20, 5, 256, 0.01
#: PyG draws vectors with deviation 1, whose products start far from zero: most of that stays.
SCALE = 0.1
PENALTIES = (0.01, 0.1, 1.0, 10.0)


def walk_vectors(data: Dataset, path: Sequence[str], epochs: int) -> Tensor:
    """Vectors (n, 64) of the nodes of the type that a cyclic path of relations starts from.

    An epoch is one walk from each of these nodes.
    """
    types = {name: (source, name, end) for name, (source, end) in data.metadata.items()}
    edges = data.to_hetero_data().edge_index_dict
    model = MetaPath2Vec(
        edges, SIZE, [types[name] for name in path], WALK, CONTEXT, num_nodes_dict=data.node_counts
    )
    with torch.no_grad():
        model.embedding.weight.mul_(SCALE)
    optimizer = torch.optim.Adam(model.parameters(), LR)
    loader = model.loader(batch_size=BATCH, shuffle=True)
    for _ in range(epochs):
        for walks, random in loader:
            optimizer.zero_grad()
            model.loss(walks, random).backward()
            optimizer.step()
    vectors: Tensor = model(types[path[0]][0]).detach()
    return vectors


def classify(task: NodeClassification, vectors: Tensor) -> dict[str, float]:
    """Macro-F1 of logistic regression on vectors of the target nodes, its penalty by validation."""
    from sklearn.linear_model import LogisticRegression

    outcomes = []
    for penalty in PENALTIES:
        model = LogisticRegression(C=penalty, max_iter=300)
        train = task.nodes["train"]
        model.fit(vectors[train].numpy(), task.labels[train].numpy())
        predicted = torch.from_numpy(model.predict(vectors.numpy()))
        outcomes.append({
            split: 100 * f1(predicted[nodes], task.labels[nodes], task.num_classes)[0]
            for split, nodes in task.nodes.items()
        })  # fmt: skip
    return max(outcomes, key=lambda scores: scores["val"])
