"""From settings to the network of tensus_tn.nn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import nn

from tensus_tn.dag import Dag, Edge
from tensus_tn.nn import MetaGraphConv, MetaGraphNet, TwoTowers
from tensus_tn.tasks.config import Config
from tensus_tn.tasks.task import ModelSpec

_NORMS: dict[str, Any] = {
    "affine": nn.LayerNorm,
    "plain": partial(nn.LayerNorm, elementwise_affine=False),
    "none": None,
}
_ACTIVATIONS = {"none": None, "tanh": torch.tanh}

#: The relation that each link takes.
Choice = Mapping[Edge, str]


def build_model(
    config: Config, spec: ModelSpec, chosen: Sequence[Choice] | None = None
) -> MetaGraphNet | TwoTowers:
    """A network with fresh parameters: one for node classification, two towers for pairs.

    Args:
        config: Its settings of the network.
        spec: Sizes and node types of the data, `task.spec`.
        chosen: A meta-graph for each network, to be kept fixed; otherwise the cores choose.

    Example:
        >>> from tensus_tn.data import planted
        >>> from tensus_tn.tasks import Config, make_task
        >>> spec = make_task(planted(num_nodes=50)).spec
        >>> config = Config(topology="path", steps=2)
        >>> net = build_model(config, spec)
        >>> best_choices(net)  # of random cores
        [{(0, 1): '...', (1, 2): '...'}]
        >>> fixed = build_model(config, spec, [{(0, 1): "A", (1, 2): "B"}])
        >>> sum(core.numel() for core in fixed.arch_parameters())
        2
    """
    nets = [
        _network(config, spec, target, chosen[k] if chosen else None)
        for k, target in enumerate(spec["targets"])
    ]
    return nets[0] if len(nets) == 1 else TwoTowers(*nets)


def networks(model: MetaGraphNet | TwoTowers) -> list[MetaGraphNet]:
    """The network itself, or both towers."""
    return [model.source, model.target] if isinstance(model, TwoTowers) else [model]


def best_choices(model: MetaGraphNet | TwoTowers) -> list[dict[Edge, str]]:
    """The most probable meta-graph of each network."""
    return [_best(net) for net in networks(model)]


def _best(net: MetaGraphNet) -> dict[Edge, str]:
    tensor = cast(MetaGraphConv, net.convs[0]).tensor
    best = tensor.top_k(1).index[0].tolist()
    return {e: tensor.choice_names[e][i] for e, i in zip(tensor.dag.edges, best, strict=True)}


def _network(config: Config, spec: ModelSpec, target: str, choice: Choice | None) -> MetaGraphNet:
    dag = Dag.complete(config.steps) if config.topology == "complete" else Dag.path(config.steps)
    if choice is not None and set(choice) != set(dag.edges):
        raise ValueError(f"the meta-graph has links {list(choice)}, the network {list(dag.edges)}")
    return MetaGraphNet(
        spec["in_channels"],
        config.hidden,
        spec["num_classes"],
        spec["metadata"],
        target,
        dag=dag,
        choices=None if choice is None else {edge: (name,) for edge, name in choice.items()},
        rank=config.rank if choice is None else 1,
        ties=config.ties,
        init_scale=config.init_scale,
        dropout=config.dropout,
        norm=_NORMS[config.norm],
        input_activation=_ACTIVATIONS[config.input_activation],
    )
