"""From settings to the network of tensus_tn.nn, and from a network to its best meta-graphs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tensus_tn.dag import Dag
from tensus_tn.explorer.page import View
from tensus_tn.nn import MetaGraph, MetaGraphNet, NodeInputs, PairBias, TwoTowers
from tensus_tn.propagation.relation_graph import RelationGraph
from tensus_tn.tasks.config import Config
from tensus_tn.tasks.task import ModelSpec

_NORMS: dict[str, Any] = {
    "affine": nn.LayerNorm,
    "plain": partial(nn.LayerNorm, elementwise_affine=False),
    "none": None,
}
_ACTIVATIONS = {"none": None, "tanh": torch.tanh, "relu": F.relu, "gelu": F.gelu}


def build_model(
    config: Config, spec: ModelSpec, chosen: Sequence[Sequence[MetaGraph]] | None = None
) -> MetaGraphNet | TwoTowers:
    """A network with fresh parameters: one for node classification, two towers for pairs.

    Args:
        config: Its settings of the network.
        spec: Sizes and node types of the data, `task.spec`.
        chosen: For each network, the meta-graphs that it is derived to; all of them if None.

    Example:
        >>> from tensus_tn.data import planted
        >>> from tensus_tn.tasks import Config, make_task
        >>> spec = make_task(planted(num_nodes=50)).spec
        >>> config = Config(topology="path", steps=2)
        >>> net = build_model(config, spec)
        >>> derived = build_model(config, spec, best_meta_graphs(net, 1))
        >>> len(net.arch_parameters()), len(derived.arch_parameters())
        (2, 0)
    """
    if len(spec["targets"]) not in (1, 2):
        raise ValueError(f"one target node type, or two for pairs, got {spec['targets']}")
    nets = [_network(config, spec, target) for target in spec["targets"]]
    if chosen is not None:
        if len(chosen) != len(nets):
            raise ValueError(
                f"meta-graphs of {len(chosen)} networks, but {len(nets)} are to be trained"
            )
        nets = [net.fix(meta_graphs) for net, meta_graphs in zip(nets, chosen, strict=True)]
    if len(nets) == 1:
        return nets[0]
    return TwoTowers(nets[0], nets[1], _bias(spec) if config.bias else None)


def best_meta_graphs(model: MetaGraphNet | TwoTowers, k: int) -> list[list[MetaGraph]]:
    """The `k` most probable meta-graphs, best first: of the network, or of either tower."""
    return [net.layers[0].meta_graphs(k) for net in _networks(model).values()]


def explorer_views(
    model: MetaGraphNet | TwoTowers, k: int, name: str, graph: RelationGraph | None = None
) -> list[View]:
    """What a page shows of a model: a view for every head of every layer of its networks."""
    found = []
    for tower, net in _networks(model).items():
        for number, layer in enumerate(net.layers):
            part = f"layer {number}" if len(net.layers) > 1 else ""
            title = " ".join(filter(None, (name, tower, part)))
            found += layer.views(k, graph, name=title)
    return found


def _networks(model: MetaGraphNet | TwoTowers) -> dict[str, MetaGraphNet]:
    """The network, or the two towers by name."""
    if isinstance(model, TwoTowers):
        return {"source": model.source, "target": model.target}
    return {"": model}


def _bias(spec: ModelSpec) -> PairBias:
    sizes = [spec["in_channels"][kind] for kind in spec["targets"]]
    degrees = [size.get("degree", 0) if isinstance(size, dict) else 0 for size in sizes]
    return PairBias([spec["num_nodes"][kind] for kind in spec["targets"]], degrees)


def _network(config: Config, spec: ModelSpec, target: str) -> MetaGraphNet:
    dag = Dag.complete(config.steps) if config.topology == "complete" else Dag.path(config.steps)
    sizes = {
        kind: NodeInputs(**size) if isinstance(size, dict) else size
        for kind, size in spec["in_channels"].items()
    }
    return MetaGraphNet(
        sizes,
        config.hidden,
        spec["num_classes"],
        spec["metadata"],
        target,
        dag=dag,
        rank=config.rank,
        ties=config.ties,
        affine=config.affine,
        divide=config.divide,
        init_scale=config.init_scale,
        head=config.head,
        dropout=config.dropout,
        state_dropout=config.state_dropout,
        norm=_NORMS[config.norm],
        activation=_ACTIVATIONS[config.activation],
        input_activation=_ACTIVATIONS[config.input_activation],
    )
