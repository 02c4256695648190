"""Layers that learn a meta-graph: the cores of a `DagTensor` as the weights of a propagation."""

from tensus_tn.nn.averaging import Average, average
from tensus_tn.nn.bias import PairBias
from tensus_tn.nn.conv import MetaGraphConv
from tensus_tn.nn.drawn import Draw
from tensus_tn.nn.graph_cache import set_graph_cache_size
from tensus_tn.nn.meta_graph import MetaGraph, MetaPath
from tensus_tn.nn.net import DIFFMG, MetaGraphNet
from tensus_tn.nn.projection import NodeInputs
from tensus_tn.nn.search import MetaGraphSearch
from tensus_tn.nn.towers import TwoTowers

__all__ = [
    "DIFFMG",
    "Average",
    "Draw",
    "MetaGraph",
    "MetaGraphConv",
    "MetaGraphNet",
    "MetaGraphSearch",
    "MetaPath",
    "NodeInputs",
    "PairBias",
    "TwoTowers",
    "average",
    "set_graph_cache_size",
]
