"""Layers that learn a meta-graph: `DagTensor` cores as the weights of a propagation."""

from tensus_tn.nn.conv import MetaGraphConv
from tensus_tn.nn.net import MetaGraphNet, TwoTowers

__all__ = ["MetaGraphConv", "MetaGraphNet", "TwoTowers"]
