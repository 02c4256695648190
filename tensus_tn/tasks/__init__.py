"""Training on heterogeneous graphs: tasks, settings and the loop."""

from tensus_tn.tasks.config import Config
from tensus_tn.tasks.models import build_model
from tensus_tn.tasks.presets import preset
from tensus_tn.tasks.task import LinkPrediction, NodeClassification, Task, make_task
from tensus_tn.tasks.train import Trainer

__all__ = [
    "Config",
    "LinkPrediction",
    "NodeClassification",
    "Task",
    "Trainer",
    "build_model",
    "make_task",
    "preset",
]
