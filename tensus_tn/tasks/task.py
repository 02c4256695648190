"""What is to be learned: inputs, loss and scores of node classification and link prediction."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensus_tn.data import Dataset, NodeLabels, NodePairs, Normalisation, Split, even_rows
from tensus_tn.data.features import like_words
from tensus_tn.data.structure import known_pairs, log_degrees, spectral
from tensus_tn.data.typing import SPLITS
from tensus_tn.nn import MetaGraphNet, NodeInputs
from tensus_tn.nn.projection import Features
from tensus_tn.propagation.blocks import Block, feature_rows
from tensus_tn.tasks.config import ALL_INPUTS, Inputs
from tensus_tn.tasks.metrics import association, auc, f1

#: Of a model with a bias: what that alone says (B,) of pairs (2, B), given the features.
BiasScores = Callable[[Features, Tensor], Tensor]


class ModelSpec(TypedDict):
    """What a network must know of its data, in plain values: so a checkpoint can hold it."""

    in_channels: dict[str, int | dict[str, int]]  # of several inputs, by name
    num_nodes: dict[str, int]
    metadata: dict[str, tuple[str, str]]
    targets: list[str]  # one node type, or the two of pairs
    num_classes: int | None


class NodeClassification:
    """Classes of the nodes of one type: cross-entropy, macro-F1 and micro-F1.

    Where a node may have several classes, the loss is the logistic one of each class, and classes
    with positive scores are predicted.

    A model is called as `model(x, graph)`, with the features `{node type: (n, F)}`, and returns
    class scores of all nodes of the target type.

    Example:
        >>> from tensus_tn.data import planted
        >>> task = NodeClassification(planted(num_nodes=50), "row")
        >>> perfect = lambda x, graph: F.one_hot(task.labels.clamp_min(0)).float()
        >>> task.scores(task.outputs(perfect, ["val"])["val"], "val")
        {'macro_f1': 1.0, 'micro_f1': 1.0}
    """

    metric = "macro_f1"

    def __init__(
        self,
        data: Dataset,
        normalisation: Normalisation = "row",
        device: torch.device | str = "cpu",
    ) -> None:
        if not isinstance(data.target, NodeLabels):
            raise TypeError(f"node classification needs labels, {data.name!r} has {data.target}")
        self.data, self.graph = data, data.graph(normalisation).to(device)
        self.x = _moved(data.inputs(), device)
        self.target, self.num_classes = data.target.kind, data.target.num_classes
        ids = data.slices[self.target]
        self.labels = data.target.labels[ids].to(device)
        self.nodes = {split: (data.target.nodes[split] - ids.start).to(device) for split in SPLITS}
        self.multi_label, self.doubtful = data.target.multi_label, data.target.doubtful
        self.known_test = data.target.known("test")
        self.spec = _spec(data, self.x, [self.target], self.num_classes)

    def outputs(
        self, model: nn.Module, splits: Sequence[Split], **options: Any
    ) -> dict[Split, Tensor]:
        """Class scores of the nodes of some splits, from one call of the model.

        A `MetaGraphNet` computes nothing else.
        """
        if isinstance(model, MetaGraphNet):
            nodes = [self.nodes[split] for split in splits]
            scores = model(self.x, self.graph, rows=torch.cat(nodes), **options)
            return dict(zip(splits, scores.split([len(ids) for ids in nodes]), strict=True))
        scores = model(self.x, self.graph, **options)
        return {split: scores[self.nodes[split]] for split in splits}

    def loss(self, output: Tensor, split: Split) -> Tensor:
        """The mean cross-entropy, over the nodes, or over nodes and classes."""
        return self._loss(output, self.labels[self.nodes[split]])

    def _loss(self, output: Tensor, labels: Tensor) -> Tensor:
        if self.multi_label:
            return F.binary_cross_entropy_with_logits(output, labels.to(output.dtype))
        return F.cross_entropy(output, labels)

    def objective(self, model: nn.Module, split: Split, **options: Any) -> Tensor:
        """The loss that is trained."""
        return self.loss(self.outputs(model, [split], **options)[split], split)

    def size(self, split: Split) -> int:
        """The nodes of a split."""
        return len(self.nodes[split])

    def share(self, part: int, parts: int) -> NodeClassification:
        """The same with every so-many-th node alone, beginning with the `part`-th."""
        shared = copy.copy(self)
        shared.nodes = {split: ids[part::parts] for split, ids in self.nodes.items()}
        return shared

    def seeds(self, split: Split) -> Tensor:
        """The nodes of a split (n,), by their ids in the graph: see `NeighborBlocks`."""
        ids: Tensor = self.nodes[split] + self.data.slices[self.target].start
        return ids

    def block_objective(
        self, model: nn.Module, block: Block, split: Split, **options: Any
    ) -> Tensor:
        """The loss of the seeds of a block, nodes of a split; features stay where they are."""
        rows, x = block.rows_of(self.target), _gathered(block, self.x)
        labels = self.labels[block.ids[self.target][rows]]
        if isinstance(model, MetaGraphNet):
            return self._loss(model(x, block.graph, rows=rows, **options), labels)
        return self._loss(model(x, block.graph, **options)[rows], labels)

    def predict(self, output: Tensor) -> Tensor:
        """Classes (n,) from class scores; or 0/1 (n, num_classes) where a node may have several."""
        return (output > 0).long() if self.multi_label else output.argmax(1)

    def scores(self, output: Tensor, split: Split) -> dict[str, float]:
        """Macro-F1, by which models are compared, and micro-F1."""
        labels = self.labels[self.nodes[split]]
        macro, micro = f1(self.predict(output), labels, self.num_classes)
        return {"macro_f1": macro, "micro_f1": micro}

    def why_unscored(self, outputs: Mapping[Split, Tensor]) -> str:
        """Why the test nodes can't be scored, given class scores of `"val"` and `"test"`; or nothing.

        Their labels may be unknown, or doubtful and found to be random: predictions agree with them
        by chance alone, though with the labels of validation nodes they do not.
        """
        if not self.known_test:
            return "the labels of the test nodes are unknown"
        if not self.doubtful:
            return ""
        val, test = (
            association(self._columns(self.predict(outputs[split])), self._columns(labels))
            for split in ("val", "test")
            for labels in [self.labels[self.nodes[split]]]
        )
        expected = val * (len(self.nodes["test"]) / len(self.nodes["val"])) ** 0.5
        if expected > 8 and test < 3:
            return "the labels of the test nodes are random: predictions agree with them by chance"
        return ""

    def _columns(self, classes: Tensor) -> Tensor:
        return classes if self.multi_label else F.one_hot(classes, self.num_classes)


class LinkPrediction:
    """Which pairs belong together: a logistic loss over positive and negative pairs, and the AUC.

    A model is called as `model(x, graph, pairs)`, with `pairs` (2, B) in ids within their node
    types, and returns their scores (B,).

    A model with a `bias` (and `bias_scores`, and for batches `likeness`, as `TwoTowers` has them) also
    learns from what that says alone: of the training pairs, so that the rest of the model need not
    learn it, and of the edges that the graph has between the two types, all of which are positive and
    count as much as a training pair each.

    Args:
        data: With pairs.
        normalisation: Of the graph, see `Dataset.graph`.
        device: Of all tensors.
        inputs: What a network sees of the nodes, added up: their `"features"` where there are some;
            their `"id"`; log degrees, `"degree"`; and the singular vectors of the edges between the
            two types, `"spectral"`. With `("features",)` alone, nodes without features have one-hot
            rows.

    Example:
        >>> from tensus_tn.data import Relation
        >>> buys = torch.tensor([[0, 1], [2, 3]])
        >>> relations = {
        ...     "IU": Relation("user", "item", buys),
        ...     "UI": Relation("item", "user", buys.flip(0)),
        ... }
        >>> likes, dislikes = (
        ...     dict.fromkeys(SPLITS, torch.tensor([pair])) for pair in ([0, 3], [1, 2])
        ... )
        >>> target = NodePairs("user", "item", likes, dislikes)
        >>> task = LinkPrediction(Dataset("shop", {"user": 2, "item": 2}, relations, target))
        >>> task.scores(torch.tensor([1.0, 0.0]), "test")  # of a positive and a negative pair
        {'auc': 1.0}
    """

    metric = "auc"

    def __init__(
        self,
        data: Dataset,
        normalisation: Normalisation = "diffmg",
        device: torch.device | str = "cpu",
        inputs: Inputs = ALL_INPUTS,
    ) -> None:
        if not isinstance(data.target, NodePairs):
            raise TypeError(f"link prediction needs pairs, {data.name!r} has {data.target}")
        self.data, self.graph = data, data.graph(normalisation).to(device)
        given = data.inputs() if tuple(inputs) == ("features",) else _several_inputs(data, inputs)
        self.x = _moved(given, device)
        self.known = known_pairs(data).to(device)
        self.source, self.target = data.target.source, data.target.destination
        start = torch.tensor([data.slices[self.source].start, data.slices[self.target].start])
        self.pairs = {
            split: torch.cat([side[split] for side in (data.target.positive, data.target.negative)])
            .sub(start)
            .T.contiguous()
            .to(device)
            for split in SPLITS
        }  # (2, 2n): first the positive ones, then as many negative ones
        self.spec = _spec(data, self.x, [self.source, self.target], None)

    def outputs(
        self, model: nn.Module, splits: Sequence[Split], **options: Any
    ) -> dict[Split, Tensor]:
        """Scores of the pairs of some splits, from one call of the model."""
        pairs = torch.cat([self.pairs[split] for split in splits], dim=1)
        scores = model(self.x, self.graph, pairs, **options)
        sizes = [self.pairs[split].shape[1] for split in splits]
        return dict(zip(splits, scores.split(sizes), strict=True))

    def loss(self, output: Tensor, split: Split) -> Tensor:
        """`-mean(log sigmoid(positive) + log sigmoid(-negative))`."""
        return self._loss(output)

    @staticmethod
    def _loss(output: Tensor) -> Tensor:
        positive, negative = output.chunk(2)
        return -(F.logsigmoid(positive) + F.logsigmoid(-negative)).mean()

    def objective(self, model: nn.Module, split: Split, **options: Any) -> Tensor:
        """The loss that is trained: of the scores, and of the bias alone where there is one."""
        loss = self.loss(self.outputs(model, [split], **options)[split], split)
        bias_scores = _bias_scores(model)
        if bias_scores is None:
            return loss
        return loss + self._bias_loss(bias_scores, self.pairs[split], self.known)

    def _bias_loss(self, bias_scores: BiasScores, pairs: Tensor, known: Tensor) -> Tensor:
        """What is trained of the bias alone: the loss of pairs, and of edges, all positive."""
        scores = bias_scores(self.x, torch.cat([pairs, known], 1))
        alone, positive = scores.split([pairs.shape[1], known.shape[1]])
        share = -F.logsigmoid(positive).sum() / (pairs.shape[1] / 2)
        return self._loss(alone) + share

    def size(self, split: Split) -> int:
        """How many positive pairs a split has; it has as many negative ones."""
        return self.pairs[split].shape[1] // 2

    def share(self, part: int, parts: int) -> LinkPrediction:
        """The same with every so-many-th pair alone, beginning with the `part`-th."""
        shared = copy.copy(self)
        shared.pairs = {
            split: torch.cat([side[:, part::parts] for side in pairs.chunk(2, dim=1)], dim=1)
            for split, pairs in self.pairs.items()
        }
        shared.known = self.known[:, part::parts]
        return shared

    def seeds(self, split: Split) -> Tensor:
        """Of each positive pair and a negative one (n, 4) the ends, by their ids in the graph."""
        ends = self.pairs[split].view(2, 2, -1) + self._starts(self.data.slices)
        return ends.permute(2, 1, 0).reshape(-1, 4)

    def block_objective(
        self, model: nn.Module, block: Block, split: Split, **options: Any
    ) -> Tensor:
        """The loss of the seeds of a block, pairs of a split; features stay where they are.

        The bias learns from as large a share of the edges as of the pairs: every pair brings some
        with it, so that an epoch has each of them once.
        """
        ends = block.rows.view(-1, 2, 2).permute(2, 1, 0) - self._starts(block.graph.node_types)
        here, x = ends.reshape(2, -1), _gathered(block, self.x)
        bias_scores = _bias_scores(model)
        if bias_scores is None:
            return self._loss(model(x, block.graph, here, **options))
        assert block.index is not None
        pairs = self.pairs[split].view(2, 2, -1)[:, :, block.index].reshape(2, -1)
        likeness: Any = model.likeness
        output = likeness(x, block.graph, here, **options) + bias_scores(self.x, pairs)
        known = self._known_with(block.index, split)
        return self._loss(output) + self._bias_loss(bias_scores, pairs, known)

    def _known_with(self, index: Tensor, split: Split) -> Tensor:
        """The edges that some of n pairs bring with them: pair k every n-th, from the k-th on."""
        edges = self.known.shape[1]
        rounds = torch.arange(0, edges, self.size(split), device=index.device)
        places = (index + rounds[:, None]).flatten()
        return self.known[:, places[places < edges]]

    def _starts(self, slices: Mapping[str, slice]) -> Tensor:
        """Where the two types begin among nodes, (2, 1, 1)."""
        starts = [slices[self.source].start, slices[self.target].start]
        return torch.tensor(starts, device=self.known.device).view(2, 1, 1)

    def scores(self, output: Tensor, split: Split) -> dict[str, float]:
        """The area under the ROC curve."""
        return {"auc": auc(*output.chunk(2))}

    def why_unscored(self, outputs: Mapping[Split, Tensor]) -> str:
        """Nothing: test pairs are always known."""
        return ""


def _bias_scores(model: nn.Module) -> BiasScores | None:
    scores: BiasScores | None = getattr(model, "bias_scores", None)
    return None if scores is None or model.bias is None else scores


def _several_inputs(data: Dataset, names: Inputs) -> dict[str, NodeInputs[Tensor]]:
    """For every node type those of the inputs that say something of it."""
    unknown = [name for name in names if name not in ALL_INPUTS]
    if unknown or not names:
        raise ValueError(f"inputs must be some of {', '.join(ALL_INPUTS)}, got {list(names)}")
    made: dict[str, Callable[[], Mapping[str, Tensor]]] = {
        "features": lambda: data.features,
        "id": lambda: {kind: torch.arange(n) for kind, n in data.node_counts.items()},
        "degree": lambda: log_degrees(data),
        "spectral": lambda: spectral(data),
    }
    found = {name: made[name]() for name in names}
    several = {
        kind: {name: of[kind] for name, of in found.items() if _says_something(of.get(kind))}
        for kind in data.node_counts
    }
    for kind, given in several.items():
        if not given:
            raise ValueError(f"of {list(names)} nodes of type {kind!r} have none: add 'id'")
    return {kind: NodeInputs(**given) for kind, given in several.items()}


def _says_something(x: Tensor | None) -> bool:
    return x is not None and (x.ndim == 1 or x.shape[1] > 0)


def _size(kind: str, x: Tensor | NodeInputs[Tensor], counts: Mapping[str, int]) -> Any:
    if isinstance(x, NodeInputs):
        return {name: _size(kind, part, counts) for name, part in x.present().items()}
    return counts[kind] if x.ndim == 1 else x.shape[1]


def _spec(data: Dataset, x: Features, targets: list[str], num_classes: int | None) -> ModelSpec:
    in_channels = {kind: _size(kind, features, data.node_counts) for kind, features in x.items()}
    for target in targets:
        if all(destination != target for _, destination in data.metadata.values()):
            raise ValueError(
                f"no relation of {data.name!r} ends in {target!r}: the last state of a meta-graph "
                f"could only be a copy; relations are {data.metadata}"
            )
    return ModelSpec(
        in_channels=in_channels,
        num_nodes=dict(data.node_counts),
        metadata=data.metadata,
        targets=targets,
        num_classes=num_classes,
    )


def _moved(x: Features, device: torch.device | str) -> dict[str, Any]:
    return _each(x, lambda kind, part: part.to(device))


def _gathered(block: Block, x: Features) -> dict[str, Any]:
    """The rows of a block's nodes."""
    ids = block.ids
    return _each(x, lambda kind, part: feature_rows(part, ids[kind]))


def _each(x: Features, change: Callable[[str, Tensor], Tensor]) -> dict[str, Any]:
    """Every input of every node type, changed."""
    return {
        kind: NodeInputs(**{name: change(kind, part) for name, part in given.present().items()})
        if isinstance(given, NodeInputs)
        else change(kind, given)
        for kind, given in x.items()
    }


Task = NodeClassification | LinkPrediction


def make_task(
    data: Dataset,
    normalisation: Normalisation | None = None,
    device: torch.device | str = "cpu",
    inputs: Inputs = ALL_INPUTS,
    even: bool = True,
) -> Task:
    """The task that fits what a data set has, labels or pairs, with its tensors on a device.

    The normalisation is that of the task's defaults if None; `inputs` are those of pairs, see
    `LinkPrediction`. Rows of features that look like words (none negative, most zero) become equally
    long, see `even_rows`, unless `even` is false.

    Example:
        >>> from tensus_tn.data import planted
        >>> make_task(planted(num_nodes=50)).metric
        'macro_f1'
    """
    if even:
        words = {kind: even_rows(x) for kind, x in data.features.items() if like_words(x)}
        data = replace(data, features={**data.features, **words})
    if isinstance(data.target, NodeLabels):
        return NodeClassification(data, normalisation or "row", device)
    return LinkPrediction(data, normalisation or "diffmg", device, inputs)
