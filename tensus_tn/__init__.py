"""Tensor networks over directed acyclic graphs, and fused propagation on heterogeneous graphs."""

from typing import TYPE_CHECKING

from tensus_tn._lazy import lazy_names
from tensus_tn._version import __version__

if TYPE_CHECKING:
    from tensus_tn.dag import Dag
    from tensus_tn.fitting.dense import decompose
    from tensus_tn.fitting.em import fit_em
    from tensus_tn.fitting.observed import complete
    from tensus_tn.fitting.report import LikelihoodReport, Report
    from tensus_tn.network.plan_cache import set_plan_cache_size
    from tensus_tn.network.tensor import DagTensor
    from tensus_tn.network.top_k import TopK
    from tensus_tn.propagation.blocks import Block, NeighborBlocks
    from tensus_tn.propagation.extension import show_config
    from tensus_tn.propagation.functional import propagate, propagate_dag
    from tensus_tn.propagation.relation_graph import RelationGraph
    from tensus_tn.propagation.rows import RowPlan

__all__ = [
    "Block",
    "Dag",
    "DagTensor",
    "LikelihoodReport",
    "NeighborBlocks",
    "RelationGraph",
    "Report",
    "RowPlan",
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

_MODULES = {
    "Block": "propagation.blocks",
    "Dag": "dag",
    "DagTensor": "network.tensor",
    "LikelihoodReport": "fitting.report",
    "NeighborBlocks": "propagation.blocks",
    "RelationGraph": "propagation.relation_graph",
    "Report": "fitting.report",
    "RowPlan": "propagation.rows",
    "TopK": "network.top_k",
    "complete": "fitting.observed",
    "decompose": "fitting.dense",
    "fit_em": "fitting.em",
    "propagate": "propagation.functional",
    "propagate_dag": "propagation.functional",
    "set_plan_cache_size": "network.plan_cache",
    "show_config": "propagation.extension",
}

if not TYPE_CHECKING:  # type checkers read the imports above
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
