"""Tensor networks over directed acyclic graphs, and fused propagation on heterogeneous graphs."""

from tensus_tn._version import __version__
from tensus_tn.cache import set_plan_cache_size
from tensus_tn.completion import complete
from tensus_tn.config import show_config
from tensus_tn.dag import Dag
from tensus_tn.decompose import decompose
from tensus_tn.em import fit_em
from tensus_tn.propagate import propagate, propagate_dag
from tensus_tn.relations import RelationGraph
from tensus_tn.report import LikelihoodReport, Report
from tensus_tn.search import TopK
from tensus_tn.tensor import DagTensor

__all__ = [
    "Dag",
    "DagTensor",
    "LikelihoodReport",
    "RelationGraph",
    "Report",
    "TopK",
    "__version__",
    "complete",
    "decompose",
    "fit_em",
    "propagate",
    "propagate_dag",
    "set_plan_cache_size",
    "show_config",
]
