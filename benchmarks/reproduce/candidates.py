"""What a meta-graph is worth, on validation data, for little work."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensus_tn.nn import MetaGraph
from tensus_tn.nn.fixed import FixedMetaGraphs
from tensus_tn.tasks import Config, Trainer, build_model
from tensus_tn.tasks.task import LinkPrediction, NodeClassification, Task


class NodeScore:
    """The validation loss of a network that gets the propagated features as its input.

    Propagation is linear: `P(X W) = P(X) W`. So a meta-graph is applied once, to the features, and
    what is left to train is a small network on the rows of training and validation. Only the
    dropout moves, from before the propagation to after it. Of the features of each node type only the
    `width` that vary most are used. Learning rate and dropout, and a layer norm without input
    activation, are such that the order of the losses is about that of full trainings.
    """

    lr, dropout = 0.003, 0.7

    def __init__(self, config: Config, task: NodeClassification, width: int = 128) -> None:
        self.config, self.task = config, task
        start = task.data.slices[task.target].start
        self.rows = torch.cat([task.nodes[split] for split in ("train", "val")]) + start
        self.num_train = len(task.nodes["train"])
        labels = [task.labels[task.nodes[split]] for split in ("train", "val")]
        self.train_labels, self.val_labels = labels
        blocks = [_reduced(x, width) for x in task.x.values()]
        self.x = torch.block_diag(*[F.pad(block, (0, 1), value=1.0) for block in blocks])

    def __call__(self, meta_graphs: Sequence[MetaGraph], seed: int) -> float:
        (meta_graph,) = meta_graphs
        propagate = FixedMetaGraphs([meta_graph], self.task.graph.relation_names)
        with torch.no_grad():
            x = propagate(self.x, self.task.graph)[self.rows]
        torch.manual_seed(seed)
        return self._train(x[: self.num_train], x[self.num_train :])

    def _train(self, train: Tensor, val: Tensor) -> float:
        config, best, waited = self.config, float("inf"), 0
        net = nn.Sequential(
            nn.Linear(train.shape[1], config.hidden, bias=False),
            nn.Dropout(self.dropout),
            nn.Linear(config.hidden, config.hidden),
            nn.LayerNorm(config.hidden),
            nn.GELU(),
            nn.Linear(config.hidden, self.task.num_classes),
        )
        adam = torch.optim.Adam(net.parameters(), self.lr, weight_decay=config.weight_decay)
        for _ in range(config.epochs):
            net.train()
            adam.zero_grad()
            F.cross_entropy(net(train), self.train_labels).backward()
            adam.step()
            net.eval()
            with torch.no_grad():
                loss = F.cross_entropy(net(val), self.val_labels).item()
            best, waited = (loss, 0) if loss < best else (best, waited + 1)
            if 0 < config.patience <= waited:
                break
        return best


class PairScore:
    """Minus the validation AUC after a short training of both towers."""

    def __init__(self, config: Config, task: LinkPrediction, epochs: int) -> None:
        changes = {"epochs": epochs, "select": "last", "progress": False, "out": ""}
        self.config, self.task = config.with_values(changes), task

    def __call__(self, meta_graphs: Sequence[MetaGraph], seed: int) -> float:
        torch.manual_seed(seed)
        model = build_model(self.config, self.task.spec, [[m] for m in meta_graphs])
        trainer = Trainer(model, self.task, self.config)
        for _ in range(self.config.epochs):
            trainer.step()
        return -trainer.evaluate("val")["auc"]


Score = NodeScore | PairScore


def make_score(config: Config, task: Task, pair_epochs: int) -> Score:
    """The one that fits the task."""
    if isinstance(task, NodeClassification):
        return NodeScore(config, task)
    return PairScore(config, task, pair_epochs)


def _reduced(x: Tensor, width: int) -> Tensor:
    """The `width` features (n, F) that vary most; not their mixtures, which Adam learns otherwise."""
    dense = x if x.layout == torch.strided else x.to_dense()
    return dense if dense.shape[1] <= width else dense[:, dense.var(0).topk(width).indices]
