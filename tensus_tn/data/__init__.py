"""Data sets: loaders of our files and of the original ones, and a graph with a planted meta-graph."""

from typing import TYPE_CHECKING

from tensus_tn._lazy import lazy_names

if TYPE_CHECKING:
    from tensus_tn.data.catalogue import has_pairs
    from tensus_tn.data.dataset import Dataset, NodeLabels, NodePairs, Relation
    from tensus_tn.data.features import even_rows
    from tensus_tn.data.frameworks import from_dgl, from_hetero_data
    from tensus_tn.data.gtn_diffmg import load_diffmg, load_gtn
    from tensus_tn.data.herec import load_herec
    from tensus_tn.data.hgb import load_hgb, write_predictions
    from tensus_tn.data.loading import load
    from tensus_tn.data.npz import load_npz
    from tensus_tn.data.planted_graph import PLANTED_PATHS, planted
    from tensus_tn.data.typing import Normalisation, Split

__all__ = [
    "PLANTED_PATHS",
    "Dataset",
    "NodeLabels",
    "NodePairs",
    "Normalisation",
    "Relation",
    "Split",
    "even_rows",
    "from_dgl",
    "from_hetero_data",
    "has_pairs",
    "load",
    "load_diffmg",
    "load_gtn",
    "load_herec",
    "load_hgb",
    "load_npz",
    "planted",
    "write_predictions",
]

_MODULES = {
    "Dataset": "dataset",
    "NodeLabels": "dataset",
    "NodePairs": "dataset",
    "Normalisation": "typing",
    "PLANTED_PATHS": "planted_graph",
    "Relation": "dataset",
    "Split": "typing",
    "even_rows": "features",
    "from_dgl": "frameworks",
    "from_hetero_data": "frameworks",
    "has_pairs": "catalogue",
    "load": "loading",
    "load_diffmg": "gtn_diffmg",
    "load_gtn": "gtn_diffmg",
    "load_herec": "herec",
    "load_hgb": "hgb",
    "load_npz": "npz",
    "planted": "planted_graph",
    "write_predictions": "hgb",
}

if not TYPE_CHECKING:  # type checkers read the imports above
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
