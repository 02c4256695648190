"""Several networks that differ in their seeds, and the average of their scores."""

from __future__ import annotations

from pathlib import Path

from tensus_tn._arguments import check_size
from tensus_tn._files import write_json
from tensus_tn._run_folder import PREDICTIONS, RESULT, open_run_folder
from tensus_tn.data import write_predictions
from tensus_tn.nn import average
from tensus_tn.tasks.config import Config
from tensus_tn.tasks.result import Result
from tensus_tn.tasks.runs import fit, load_task, untrained
from tensus_tn.tasks.task import NodeClassification, Task
from tensus_tn.tasks.train import Trainer


def run_average(config: Config, k: int, task: Task | None = None) -> Result:
    """Train `k` networks, with the seed of the settings and those after it, and score their average.

    Each has a folder of its own in `out`, the average its scores and predictions.

    Example:
        >>> result = run_average(Config(topology="path", steps=2, epochs=2, progress=False), 3)
        >>> result.epochs, sorted(result.test)
        (6, ['loss', 'macro_f1', 'micro_f1'])
    """
    check_size("k", k)
    task = load_task(config) if task is None else task
    if not config.out:
        return _run_average(config, k, task)
    out = Path(config.out)
    with open_run_folder(out, resume=config.resume, overwrite=config.overwrite):
        return _run_average(config, k, task)


def _run_average(config: Config, k: int, task: Task) -> Result:
    models, results = [], []
    for seed in range(config.seed, config.seed + k):
        out = str(Path(config.out) / f"seed{seed}") if config.out else ""
        member = config.with_values({"seed": seed, "out": out})
        model, chosen = untrained(member, task)
        results.append(fit(model, task, member, chosen))
        models.append(model)
    trainer = Trainer(average(models), task, config.with_values({"search": "soft"}))
    outputs = trainer.outputs("val", "test")
    unscored = task.why_unscored(outputs)
    result = Result(
        config.to_dict(),
        max(member.best_epoch for member in results),
        sum(member.epochs for member in results),
        trainer.evaluate("val"),
        {} if unscored else trainer.evaluate("test"),
        sum(member.num_parameters for member in results),
        sum(member.seconds for member in results),
        [meta_graph for member in results for meta_graph in member.meta_graphs],
        [],
        unscored,
    )
    if config.out:
        if isinstance(task, NodeClassification):
            predicted = task.predict(outputs["test"])
            write_predictions(Path(config.out) / PREDICTIONS, task.data, predicted)
        write_json(Path(config.out) / RESULT, result.to_dict())
    return result
