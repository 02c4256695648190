"""Tensor networks over directed acyclic graphs, and fused propagation on heterogeneous graphs."""

from tensus_tn._version import __version__
from tensus_tn.dag import Dag

__all__ = ["Dag", "__version__"]
