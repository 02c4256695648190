"""A run: data, network, training, scores, and the files that it leaves."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tensus_tn._arguments import check_memory
from tensus_tn._checkpoint import load_checkpoint
from tensus_tn._files import write_csv, write_json
from tensus_tn._run_folder import (
    CHECKPOINT,
    HISTORY,
    PREDICTIONS,
    RESULT,
    open_run_folder,
    require_no_run,
)
from tensus_tn.data import load, write_predictions
from tensus_tn.distributed.handshake import handshake
from tensus_tn.distributed.processes import Processes
from tensus_tn.nn import MetaGraph, MetaGraphNet, TwoTowers
from tensus_tn.tasks.config import Config
from tensus_tn.tasks.models import best_meta_graphs, build_model
from tensus_tn.tasks.result import Record, Result
from tensus_tn.tasks.task import NodeClassification, Task, make_task
from tensus_tn.tasks.train import Trainer


def run(
    config: Config,
    task: Task | None = None,
    callback: Callable[[Record], object] = lambda record: None,
) -> Result:
    """Train by the settings, score the best epoch on the test split, write files into `out`.

    With `meta_graph`, only the best meta-graphs of that checkpoint are trained, `top` of them. A run
    that stands in `out` already is not touched, unless `resume` or `overwrite` says so.

    Args:
        config: All settings.
        task: Made from the settings if None; pass it where many runs share it.
        callback: Called with the record of every epoch, for loggers and plots of your own.

    Example:
        >>> result = run(Config(topology="path", steps=2, epochs=3, progress=False))
        >>> result.epochs, sorted(result.test)
        (3, ['loss', 'macro_f1', 'micro_f1'])
    """
    if config.out and not (config.resume or config.overwrite):
        Processes.of(None).first(lambda: require_no_run(Path(config.out)))
    task = load_task(config) if task is None else task
    what = f"numbers in a state of {config.hidden:,} features"
    check_memory(what, task.graph.num_nodes * config.hidden, torch.float32, config.device)
    model, chosen = untrained(config, task)
    return fit(model, task, config, chosen, callback)


def untrained(
    config: Config, task: Task
) -> tuple[MetaGraphNet | TwoTowers, list[list[MetaGraph]] | None]:
    """The network of the settings, by their seed, and the meta-graphs that it is derived to."""
    chosen = None
    if config.meta_graph:
        chosen = best_meta_graphs(restore(config.meta_graph, "cpu")[1], config.top)
    torch.manual_seed(config.seed)
    return build_model(config, task.spec, chosen), chosen


def load_task(config: Config) -> Task:
    """The task of the settings' data.

    Example:
        >>> load_task(Config(data="planted")).metric
        'macro_f1'
    """
    given = {
        "node_types": config.node_types,
        "seed": config.split_seed,
        "missing": config.missing,
    }
    usual = {"node_types": "true", "seed": 0, "missing": "one-hot"}  # not every loader knows these
    options = {key: value for key, value in given.items() if value != usual[key]}
    return make_task(
        load(config.data, **options),
        config.normalisation,
        config.device,
        config.input_names(),
        config.even,
    )


def fit(
    model: nn.Module,
    task: Task,
    config: Config,
    chosen: Sequence[Sequence[MetaGraph]] | None = None,
    callback: Callable[[Record], object] = lambda record: None,
) -> Result:
    """Train any model that the task can call, by the settings, as `run` does with its own.

    Args:
        model: The network.
        task: What to learn.
        config: All settings.
        chosen: What the model was derived to; it goes into the checkpoint.
        callback: Called with the record of every epoch, for loggers and plots of your own.

    Example:
        >>> class Bias(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.score = nn.Parameter(torch.zeros(2))
        ...
        ...     def forward(self, x, graph):
        ...         return self.score.expand(len(x["t"]), 2)
        >>> config = Config(epochs=2, progress=False)
        >>> fit(Bias(), load_task(config), config).num_parameters
        2
    """
    processes = Processes.of(None)
    settings = {k: v for k, v in config.to_dict().items() if k not in ("progress", "device")}
    handshake(processes, {"data": task.data, **settings})
    if not config.out:
        return _fit(model, task, config, chosen, callback, None)
    out = Path(config.out)
    with ExitStack() as held:
        folder = open_run_folder(out, resume=config.resume, overwrite=config.overwrite)
        processes.first(lambda: held.enter_context(folder))
        return _fit(model, task, config, chosen, callback, out)


def _fit(
    model: nn.Module,
    task: Task,
    config: Config,
    chosen: Sequence[Sequence[MetaGraph]] | None,
    callback: Callable[[Record], object],
    out: Path | None,
) -> Result:
    extra: dict[str, Any] = {"spec": dict(task.spec), "chosen": None}
    if chosen is not None:
        extra["chosen"] = [[meta_graph.to_json() for meta_graph in several] for several in chosen]
    trainer = Trainer(model, task, config, extra)
    if out is not None and config.resume and (out / CHECKPOINT).exists():
        trainer.resume(out / CHECKPOINT)
    first = trainer.processes.rank == 0
    log, close = _tensorboard(config) if first else (lambda record: None, lambda: None)

    def after_epoch(record: Record) -> None:
        log(record)
        callback(record)

    try:
        trainer.run(None if out is None else out / CHECKPOINT, after_epoch)
    finally:
        close()
    outputs = trainer.outputs("val", "test")
    unscored = task.why_unscored(outputs)
    learned = best_meta_graphs(model, 1) if isinstance(model, MetaGraphNet | TwoTowers) else []
    result = Result(
        config.to_dict(),
        trainer.best_epoch,
        trainer.epoch,
        trainer.evaluate("val"),
        {} if unscored else trainer.evaluate("test"),
        sum(p.numel() for p in model.parameters()),
        trainer.seconds,
        [json.loads(best.to_json()) for (best,) in learned],
        trainer.history,
        unscored,
    )
    if out is not None and first:
        if isinstance(task, NodeClassification):
            write_predictions(out / PREDICTIONS, task.data, task.predict(outputs["test"]))
        write_json(out / RESULT, result.to_dict())
        write_csv(out / HISTORY, result.history)
    return result


def restore(
    checkpoint: str | os.PathLike[str], device: str | None = None
) -> tuple[Config, MetaGraphNet | TwoTowers]:
    """Settings and network, in its best state, from a checkpoint or the folder of a run.

    The network is on the device of its run, or on another one that is given.

    Example:
        >>> import tempfile
        >>> config = Config(epochs=2, progress=False, out=tempfile.mkdtemp())
        >>> result = run(config)
        >>> restored, model = restore(config.out)
        >>> restored == config
        True
    """
    path = Path(checkpoint)
    path = path / CHECKPOINT if path.is_dir() else path
    state = load_checkpoint(path, "config")
    try:
        config = Config().with_values(state["config"])
        config = config if device is None else config.with_values({"device": device})
        chosen = state["chosen"]
        if chosen is not None:
            chosen = [[MetaGraph.from_json(text) for text in several] for several in chosen]
        model = build_model(config, state["spec"], chosen)
        model.load_state_dict(state["best_state"])
    except (LookupError, RuntimeError, TypeError, AttributeError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{path} is of a model that is not ours: {reason}") from error
    return config, model.to(config.device)


def _tensorboard(config: Config) -> tuple[Callable[[Record], object], Callable[[], object]]:
    """What to call after an epoch and at the end."""
    if not config.tensorboard:
        return lambda record: None, lambda: None
    if not config.out:
        raise ValueError("TensorBoard logs need a folder: set `out`")
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ImportError("TensorBoard logs need `pip install tensorboard`") from error
    writer = SummaryWriter(config.out)

    def log(record: Record) -> None:
        for name, value in record.items():
            if name != "epoch":
                writer.add_scalar(name, value, int(record["epoch"]))

    return log, writer.close
