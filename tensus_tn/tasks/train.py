"""The training loop: whole or in blocks, early stopping, checkpoints that resume to the same bits."""

from __future__ import annotations

import copy
import math
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from tensus_tn._checkpoint import load_checkpoint, save_checkpoint
from tensus_tn.data import Split
from tensus_tn.distributed.processes import Processes
from tensus_tn.distributed.training import sum_gradients
from tensus_tn.propagation.blocks import Block, NeighborBlocks
from tensus_tn.tasks.config import Config
from tensus_tn.tasks.progress import Progress
from tensus_tn.tasks.result import Record
from tensus_tn.tasks.task import Task


class Trainer:
    """Trains a model on a task, one full batch per epoch or blocks of it, and keeps the best state.

    The cores (`model.arch_parameters()`, if there is such a method) have an optimizer of their own,
    and the biases of pairs (`model.bias_parameters()`) a learning rate and a weight decay. Cores learn
    from the training loss with the weights (`updates="joint"`), or from the validation loss after
    them (`"alternating"`). With `search="sampled"` one meta-graph is drawn for each epoch,
    epsilon-greedily, and serves both updates, as in DiffMG; with `"gumbel"`, by its probability.
    With a `batch_size`, an epoch takes a step for each block of so many training nodes or pairs (see
    `NeighborBlocks`), with a draw for each. Cores that learn in turns with the weights do so from
    blocks of the validation split, which is begun anew when it ends, and in every epoch. Scores are
    always of the whole graph.

    Where several processes were brought together (`tensus_tn.distributed.init`), each has its share
    of the nodes or pairs of a split or a batch, gradients are summed, and only the first one writes.
    What is random in an epoch then depends on the seed, the epoch and the process alone, so that a
    run goes on to the same result from any checkpoint; draws are the same on all.

    Args:
        model: Called as the task says.
        task: What to learn.
        config: The settings; only those of training count here.
        extra: Plain values and tensors to go into every checkpoint.

    Example:
        >>> from tensus_tn.data import planted
        >>> from tensus_tn.tasks import Config, build_model, make_task
        >>> config = Config(data="planted", topology="path", steps=2, epochs=2, progress=False)
        >>> task = make_task(planted(num_nodes=50))
        >>> trainer = Trainer(build_model(config, task.spec), task, config)
        >>> [int(record["epoch"]) for record in trainer.run()]
        [1, 2]
    """

    def __init__(
        self, model: nn.Module, task: Task, config: Config, extra: dict[str, Any] | None = None
    ) -> None:
        self.model = model.to(config.device)
        self.task, self.config, self.extra = task, config, extra or {}
        self.processes = Processes.of(None)
        self._share = _share_of(task, self.processes)
        cores, biases = (_own(model, name) for name in ("arch_parameters", "bias_parameters"))
        ids = {id(parameter) for parameter in [*cores, *biases]}
        weights = [p for p in model.parameters() if id(p) not in ids]
        groups: list[dict[str, Any]] = [
            {"params": weights, "lr": config.lr, "weight_decay": config.weight_decay},
            {"params": biases, "lr": config.bias_lr, "weight_decay": config.bias_weight_decay},
        ]
        self.weight_optimizer = torch.optim.Adam([group for group in groups if group["params"]])
        self.core_optimizer = torch.optim.Adam(cores, lr=config.core_lr) if cores else None
        self._in_turns = config.updates == "alternating" and bool(cores)
        self._sampled = config.search != "soft" and bool(cores)
        if self._sampled and not hasattr(model, "sample"):
            raise TypeError(
                f"search={config.search!r} needs a model with `sample`, got {type(model)}"
            )
        if config.batch_size and hasattr(model, "bias_scores") and not hasattr(model, "likeness"):
            raise TypeError(
                f"batches need a model with `likeness` beside its bias, got {type(model)}"
            )
        splits: list[Split] = ["train", "val"] if self._in_turns else ["train"]
        self._blocks = {
            split: _blocks(task, split, config, self.processes)
            for split in (splits if config.batch_size else [])
        }
        self.history: list[Record] = []
        self.best_epoch, self.best_value = 0, math.inf
        self.best_state: dict[str, Tensor] = {}
        self.seconds = 0.0

    @property
    def epoch(self) -> int:
        """How many epochs are done."""
        return len(self.history)

    @property
    def done(self) -> bool:
        """Whether the last epoch is reached, or there was no improvement for too long."""
        waited = self.epoch - self.best_epoch
        return self.epoch >= self.config.epochs or 0 < self.config.patience <= waited

    def run(
        self,
        checkpoint: Path | None = None,
        callback: Callable[[Record], object] = lambda record: None,
    ) -> list[Record]:
        """Train until done, and put the best state into the model.

        Ctrl-C finishes the epoch, writes the checkpoint and raises KeyboardInterrupt; a second one
        interrupts at once, and leaves the last checkpoint.

        Args:
            checkpoint: Written every `checkpoint_every` epochs and at the end.
            callback: Called with the record of every epoch.

        Returns:
            The records of all epochs: losses and validation scores.
        """
        title = f"{self.task.data.name} seed {self.config.seed}"
        first = self.processes.rank == 0
        shown = self.config.progress and first
        progress = Progress(title, self.config.epochs, self.epoch, shown=shown)
        with progress, _deterministic(), _deferred_interrupt() as interrupted:
            while not (self.done or self._anyone(interrupted.is_set())):
                start = time.perf_counter()
                record = self._run_epoch()
                self.seconds += time.perf_counter() - start
                callback(record)
                score = f"{record[f'val_{self.task.metric}']:.4f}"
                values = {"loss": f"{record['train_loss']:.3f}", self.task.metric: score}
                progress.update(self.epoch, values)
                due = self.epoch % self.config.checkpoint_every == 0
                if first and checkpoint is not None and (due or self.done or interrupted.is_set()):
                    save_checkpoint(checkpoint, self.state_dict())
        if interrupted.is_set():
            raise KeyboardInterrupt
        self.model.load_state_dict(self.best_state)
        return self.history

    def _run_epoch(self) -> Record:
        train_loss, outcome = self.step(), self.processes.gather(self.evaluate("val"))[0]
        for split, loss in (("training", train_loss), ("validation", outcome["loss"])):
            if not math.isfinite(loss):
                raise ValueError(
                    f"the {split} loss is {loss} in epoch {self.epoch + 1}: try a smaller lr"
                )
        record = {"epoch": self.epoch + 1, "train_loss": train_loss}
        record.update({f"val_{key}": value for key, value in outcome.items()})
        self.history.append(record)
        self._keep_if_best(outcome)
        return record

    def step(self) -> float:
        """The updates of one epoch; returns the training loss before them, or their mean."""
        self.model.train()
        if self._blocks:
            return self._step_by_blocks()
        draw = self._draw_for(0)
        loss = self._update("train", self._loss("train", draw))
        if self._in_turns:
            self._update("val", self._loss("val", draw))
        return loss

    def _loss(self, split: Split, draw: dict[str, Any]) -> Tensor:
        """The loss of a split, or this process's share of it."""
        loss = self._share.objective(self.model, split, **draw)
        if self.processes.size > 1:
            loss = loss * (self._share.size(split) / self.task.size(split))
        return loss

    def _step_by_blocks(self) -> float:
        """A step for each block; returns the mean of the losses over all of the training split."""
        for blocks in self._blocks.values():
            assert blocks.generator is not None
            blocks.generator.manual_seed(_mixed(self.config.seed, self.epoch))
        total, others = 0.0, self._endless("val")
        for number, (size, block) in enumerate(self._sized("train")):
            draw = self._draw_for(number)
            total += size * self._update("train", self._block_loss("train", size, block, draw))
            if self._in_turns:
                self._update("val", self._block_loss("val", *next(others), draw))
        others.close()
        return total / self.task.size("train")

    def _block_loss(self, split: Split, size: int, block: Block, draw: dict[str, Any]) -> Tensor:
        """This process's share of the loss of a batch of so many nodes or pairs."""
        if not len(block.rows):  # of the last batch there may be nothing here
            return torch.zeros((), requires_grad=True)
        moved = block.to(self.config.device)
        loss = self.task.block_objective(self.model, moved, split, **draw)
        return loss * (len(block.rows) / size)

    def _sized(self, split: Split) -> Iterator[tuple[int, Block]]:
        """The blocks of a split, each with the size of its batch on all processes together."""
        left = self.task.size(split)
        for block in self._blocks[split]:
            size = min(left, self.config.batch_size)
            yield size, block
            left -= size

    def _endless(self, split: Split) -> Generator[tuple[int, Block], None, None]:
        while True:
            yield from self._sized(split)

    def _update(self, split: Split, loss: Tensor) -> float:
        """One gradient step, of what follows the loss of a split."""
        self.model.zero_grad(set_to_none=True)
        loss.backward()
        sum_gradients(self.model.parameters())
        if split == "train":
            self.weight_optimizer.step()
        if self.core_optimizer and self._in_turns == (split == "val"):
            self.core_optimizer.step()
        return self.processes.sum(loss.detach()).item()

    def _draw(self) -> dict[str, Any]:
        """Arguments that make the model follow one meta-graph, where that is wanted."""
        if not self._sampled:
            return {}
        epsilon = self.config.epsilon * self.config.epsilon_decay**self.epoch
        sample: Any = self.model.sample
        return {"draw": sample(epsilon=epsilon if self.config.search == "sampled" else None)}

    def _draw_for(self, step: int) -> dict[str, Any]:
        """The draw of a step. It is the same on all processes; what is random after it is not."""
        if self.processes.size == 1:
            return self._draw()
        torch.manual_seed(_mixed(self.config.seed, self.epoch, step, 0))
        draw = self._draw()
        torch.manual_seed(_mixed(self.config.seed, self.epoch, step, 1 + self.processes.rank))
        return draw

    def _anyone(self, fact: bool) -> bool:
        return fact if self.processes.size == 1 else self.processes.extremes(int(fact))[1] == 1

    def evaluate(self, split: Split) -> Record:
        """Loss and scores of a split, of the model as it is."""
        output = self.outputs(split)[split]
        return {"loss": self.task.loss(output, split).item(), **self.task.scores(output, split)}

    @torch.no_grad()
    def outputs(self, *splits: Split) -> dict[Split, Tensor]:
        """What the model, as it is, says of some splits."""
        self.model.eval()
        best: dict[str, Any] = {}
        if self._sampled:  # above rank 1 states are drawn: always the same ones, for comparisons
            sample: Any = self.model.sample
            best["draw"] = sample(epsilon=0.0, generator=torch.Generator().manual_seed(0))
        return self.task.outputs(self.model, splits, **best)

    def _keep_if_best(self, outcome: Record) -> None:
        value = {
            "loss": outcome["loss"],
            "metric": -outcome[self.task.metric],
            "last": -float(self.epoch),
        }[self.config.select]
        if value < self.best_value:
            self.best_epoch, self.best_value = self.epoch, value
            self.best_state = copy.deepcopy(self.model.state_dict())

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next epochs depend on."""
        cores = self.core_optimizer
        return {
            "config": self.config.to_dict(),
            "data": repr(self.task.data),
            "model": self.model.state_dict(),
            "weight_optimizer": self.weight_optimizer.state_dict(),
            "core_optimizer": None if cores is None else cores.state_dict(),
            "history": self.history,
            "best_epoch": self.best_epoch,
            "best_value": self.best_value,
            "best_state": self.best_state,
            "seconds": self.seconds,
            "rng": torch.get_rng_state(),
            **self.extra,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to where `state_dict` was called."""
        if state["best_state"].keys() != state["model"].keys():
            raise ValueError("the best state is of another network than the last one")
        self.model.load_state_dict(state["model"])
        self.weight_optimizer.load_state_dict(state["weight_optimizer"])
        if self.core_optimizer is not None:
            self.core_optimizer.load_state_dict(state["core_optimizer"])
        self.history, self.seconds = list(state["history"]), state["seconds"]
        self.best_epoch, self.best_value = state["best_epoch"], state["best_value"]
        self.best_state = state["best_state"]
        torch.set_rng_state(state["rng"])

    def resume(self, checkpoint: Path) -> None:
        """Go on from a checkpoint of the same run; more epochs than before are fine."""
        needed = [key for key in self.state_dict() if key not in self.extra]
        state = load_checkpoint(checkpoint, *needed)
        mine, theirs = self.config.to_dict(), dict(state["config"])
        differ = [key for key in mine if key not in _FREE and mine[key] != theirs.get(key)]
        changes = [f"{key}: {theirs.get(key)!r} there, {mine[key]!r} here" for key in differ]
        if state["data"] != repr(self.task.data):
            changes.append(f"its data are {state['data']}")
        changes += [f"another {key}" for key in self.extra if state.get(key) != self.extra[key]]
        if changes:
            raise ValueError(f"{checkpoint} is of another run: {'; '.join(changes)}")
        try:
            self.load_state_dict(state)
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            reason = str(error).partition("\n")[0]
            raise ValueError(f"{checkpoint} does not fit its own settings: {reason}") from error


def _own(model: nn.Module, name: str) -> list[nn.Parameter]:
    """Parameters with settings of their own, which the model lists by a method; none without it."""
    parameters: Callable[[], list[nn.Parameter]] = getattr(model, name, list)
    return parameters()


def _share_of(task: Task, processes: Processes) -> Task:
    """What a process trains on: all of the task, where it is alone."""
    if processes.size == 1:
        return task
    for split in ("train", "val"):
        if task.size(split) < processes.size:
            raise ValueError(
                f"{processes.size} processes, but the split {split!r} has {task.size(split)} nodes "
                "or pairs: each needs one at least"
            )
    return task.share(processes.rank, processes.size)


def _mixed(*numbers: int) -> int:
    """One seed of several numbers."""
    return int.from_bytes(blake2b(repr(numbers).encode(), digest_size=7).digest(), "little")


def _blocks(task: Task, split: Split, config: Config, processes: Processes) -> NeighborBlocks:
    """The nodes or pairs of a split in blocks, one prepared while another is trained on.

    A batch is shared among the processes; its nodes and neighbours depend on the epoch alone.
    """
    if config.batch_size % processes.size:
        raise ValueError(
            f"a batch is shared among {processes.size} processes: batch_size must be a multiple of "
            f"that, got {config.batch_size}"
        )
    # The graph of a data set does not name its node types, by which features are gathered.
    graph = replace(task.graph.to("cpu"), node_counts=tuple(task.data.node_counts.items()))
    return NeighborBlocks(
        graph,
        task.seeds(split).cpu(),
        config.hops(),
        config.batch_size // processes.size,
        shuffle=True,
        generator=torch.Generator(),
        rank=processes.rank,
        world=processes.size,
        workers=1,
    )


#: Settings that may change when a run is resumed.
_FREE = (
    "epochs",
    "device",
    "out",
    "checkpoint_every",
    "resume",
    "overwrite",
    "progress",
    "tensorboard",
)


@contextmanager
def _deterministic() -> Iterator[None]:
    """The same bits in every run: gathers of pairs would otherwise add up in any order."""
    settings: Any = torch.utils.deterministic
    before = torch.get_deterministic_debug_mode(), settings.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    settings.fill_uninitialized_memory = False  # nothing here reads memory before it is written
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before[0])
        settings.fill_uninitialized_memory = before[1]


@contextmanager
def _deferred_interrupt() -> Iterator[threading.Event]:
    """Set an event at the first Ctrl-C; the second one is handled as before."""
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    before = signal.getsignal(signal.SIGINT)

    def on_signal(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, on_signal)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)
