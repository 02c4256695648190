"""Training on heterogeneous graphs: tasks, settings, the loop, and comparisons of methods."""

from typing import TYPE_CHECKING

from tensus_tn._lazy import lazy_names

if TYPE_CHECKING:
    from tensus_tn.tasks.averaging import run_average
    from tensus_tn.tasks.comparison import METHODS, Method, compare, equal_rank, table
    from tensus_tn.tasks.config import Config
    from tensus_tn.tasks.cross_entropy import Candidate, cross_entropy_search
    from tensus_tn.tasks.models import best_meta_graphs, build_model
    from tensus_tn.tasks.presets import PAIRS, preset
    from tensus_tn.tasks.result import Result
    from tensus_tn.tasks.runs import fit, load_task, restore, run
    from tensus_tn.tasks.task import LinkPrediction, NodeClassification, Task, make_task
    from tensus_tn.tasks.train import Trainer

__all__ = [
    "METHODS",
    "PAIRS",
    "Candidate",
    "Config",
    "LinkPrediction",
    "Method",
    "NodeClassification",
    "Result",
    "Task",
    "Trainer",
    "best_meta_graphs",
    "build_model",
    "compare",
    "cross_entropy_search",
    "equal_rank",
    "fit",
    "load_task",
    "make_task",
    "preset",
    "restore",
    "run",
    "run_average",
    "table",
]

_MODULES = {
    "Candidate": "cross_entropy",
    "Config": "config",
    "LinkPrediction": "task",
    "METHODS": "comparison",
    "Method": "comparison",
    "NodeClassification": "task",
    "PAIRS": "presets",
    "Result": "result",
    "Task": "task",
    "Trainer": "train",
    "best_meta_graphs": "models",
    "build_model": "models",
    "compare": "comparison",
    "cross_entropy_search": "cross_entropy",
    "equal_rank": "comparison",
    "fit": "runs",
    "load_task": "runs",
    "make_task": "task",
    "preset": "presets",
    "restore": "runs",
    "run": "runs",
    "run_average": "averaging",
    "table": "comparison",
}

if not TYPE_CHECKING:  # type checkers read the imports above
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
