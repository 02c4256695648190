"""Tensor networks over directed acyclic graphs, and fused propagation on heterogeneous graphs."""

from tensus_tn._version import __version__
from tensus_tn.dag import Dag
from tensus_tn.fitting.dense import decompose
from tensus_tn.fitting.em import fit_em
from tensus_tn.fitting.observed import complete
from tensus_tn.fitting.report import LikelihoodReport, Report
from tensus_tn.network.plan_cache import set_plan_cache_size
from tensus_tn.network.tensor import DagTensor
from tensus_tn.network.top_k import TopK
from tensus_tn.propagation.extension import show_config
from tensus_tn.propagation.functional import propagate, propagate_dag
from tensus_tn.propagation.relation_graph import RelationGraph

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
