"""From settings to the network of tensus_tn.nn."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from tensus_tn.dag import Dag
from tensus_tn.nn import MetaGraphNet, TwoTowers
from tensus_tn.tasks.config import Config
from tensus_tn.tasks.task import NodeClassification, Task

_NORMS: dict[str, Any] = {
    "affine": nn.LayerNorm,
    "plain": partial(nn.LayerNorm, elementwise_affine=False),
    "none": None,
}
_ACTIVATIONS = {"none": None, "tanh": torch.tanh}


def build_model(config: Config, task: Task) -> MetaGraphNet | TwoTowers:
    """A network with fresh parameters: one for node classification, two towers for pairs.

    Example:
        >>> from tensus_tn.data import planted
        >>> from tensus_tn.tasks import Config, make_task
        >>> task = make_task(planted(num_nodes=50))
        >>> type(build_model(Config(topology="path", steps=2), task)).__name__
        'MetaGraphNet'
    """
    if isinstance(task, NodeClassification):
        return _network(config, task, task.target, task.num_classes)
    return TwoTowers(*(_network(config, task, kind, None) for kind in (task.source, task.target)))


def _network(config: Config, task: Task, target: str, num_classes: int | None) -> MetaGraphNet:
    make: Any = Dag.complete if config.topology == "complete" else Dag.path
    return MetaGraphNet(
        {kind: x.shape[1] for kind, x in task.x.items()},
        config.hidden,
        num_classes,
        task.data.metadata,
        target,
        dag=make(config.steps),
        rank=config.rank,
        ties=config.ties,
        init_scale=config.init_scale,
        dropout=config.dropout,
        norm=_NORMS[config.norm],
        input_activation=_ACTIVATIONS[config.input_activation],
    )
