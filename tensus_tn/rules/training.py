"""Training: queries in batches, the epoch that ranks validation triples best, checkpoints."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tensus_tn._arguments import check_size
from tensus_tn._checkpoint import load_checkpoint, save_checkpoint
from tensus_tn.rules import defaults
from tensus_tn.rules.knowledge_graph import KnowledgeGraph, as_triples
from tensus_tn.rules.walks import KnownAnswers, Queries, both_ways, make_queries

if TYPE_CHECKING:
    from tensus_tn.rules.model import RuleModel

_STEPS = 2000  # of the optimizer, about, where `epochs` is not given
#: Settings that may change when a run is resumed.
_FREE = ("epochs", "device", "checkpoint", "resume", "progress")


@dataclass(frozen=True)
class Settings:
    """How a `RuleModel` is trained.

    Attributes:
        epochs: Passes over the training queries. When None, as many as make some 2,000 steps, 1 to 6;
            but 3 over a part of them where that would take too long, see `tensus_tn.rules.defaults`.
        batch: Queries of a step.
        lr: Adam's learning rate at the start; it falls to a twentieth along a cosine. When None,
            0.1, or 0.05 on graphs with less than 10,000 entities.
        decay: Weight decay (of AdamW). When None, such that a weight without a gradient shrinks to
            about a third over the whole run.
        patience: Stop after so many epochs without a better validation MRR; 0 never stops early.
        max_queries: Queries of an epoch, drawn anew each time. All when None, if `epochs` is given or
            they do not take too long.
        max_valid: Validation triples that are ranked after an epoch, the first of a fixed shuffle.
        seed: Of the order of the queries.
        device: Where to train; where the model is when None.
        checkpoint: A file that is written after every epoch.
        resume: Go on from `checkpoint`, if it is there; the result is that of an uninterrupted run.
        progress: Show a progress bar.
    """

    epochs: int | None = None
    batch: int = 250
    lr: float | None = None
    decay: float | None = None
    patience: int = 5
    max_queries: int | None = None
    max_valid: int = 5000
    seed: int = 0
    device: str | torch.device | None = None
    checkpoint: str | os.PathLike[str] | None = None
    resume: bool = False
    progress: bool = True

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "max_queries", "max_valid"):
            if getattr(self, name) is not None:
                check_size(name, getattr(self, name))
        if self.lr is not None and not (math.isfinite(self.lr) and self.lr > 0):
            raise ValueError(f"lr must be a positive number, got {self.lr}")
        if (self.decay or 0) < 0 or self.patience < 0:
            raise ValueError("decay and patience must not be negative")
        if self.resume and self.checkpoint is None:
            raise ValueError("resume needs a checkpoint to go on from")


@dataclass
class FitReport:
    """What happened in training.

    Attributes:
        history: One record for each epoch: epoch, loss, and, with validation triples, their MRR.
        best_epoch: The epoch whose cores were kept; the last one without validation triples.
        seconds: Training and validation.
    """

    history: list[dict[str, float]] = field(default_factory=list)
    best_epoch: int = 0
    seconds: float = 0.0

    @property
    def best_mrr(self) -> float:
        """The validation MRR of the epoch that was kept; NaN without validation triples."""
        return self.history[self.best_epoch - 1].get("valid_mrr", math.nan)

    def __repr__(self) -> str:
        known = not math.isnan(self.best_mrr)
        score = f"validation MRR {self.best_mrr:.4f}" if known else "no validation triples"
        epochs = f"best epoch {self.best_epoch} of {len(self.history)}"
        return f"FitReport({epochs}, {score}, {self.seconds:.1f} s)"


def fit(model: RuleModel, train: Any = None, valid: Any = None, **settings: Any) -> FitReport:
    """Train a model; see `RuleModel.fit`."""
    s = Settings(**settings)
    if s.device is not None:
        model.to(s.device)
    graph = model.graph
    training = TrainingQueries(graph, train)
    valid = graph.valid if valid is None else as_triples(valid, graph)
    shuffled = torch.randperm(len(valid), generator=torch.Generator().manual_seed(0))
    valid = valid[shuffled[: s.max_valid]]
    epochs, per_epoch = _schedule(model, s, len(training))
    batches = max(1, round(per_epoch / s.batch))
    lr = s.lr or (0.1 if graph.num_entities >= 10_000 else 0.05)
    # Along the cosine, the learning rate is about half of `lr` on average.
    decay = 2 / (lr * epochs * batches) if s.decay is None else s.decay
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=decay, fused=True)
    run = _Run(model, optimizer, _made_of(model, training, valid, s), FitReport(), {}, 0)
    if s.resume and s.checkpoint is not None and os.path.exists(s.checkpoint):
        run.restore(s.checkpoint)
    bar = _progress_bar(epochs * batches, len(run.report.history) * batches, s.progress)
    while len(run.report.history) < epochs and not run.should_stop(s.patience):
        start = time.perf_counter()
        epoch = len(run.report.history)
        total = 0.0
        for step, queries in enumerate(training.batches(s, per_epoch, epoch, model.width)):
            for group in optimizer.param_groups:
                group["lr"] = lr * _cosine((epoch * batches + step) / (epochs * batches))
            optimizer.zero_grad()
            loss = model.loss(queries)
            loss.backward()
            optimizer.step()
            total += float(loss.detach())
            bar.update()
        record = {"epoch": epoch + 1, "loss": total / batches}
        if not math.isfinite(total):
            raise FloatingPointError(f"the loss is {total} in epoch {epoch + 1}: try a smaller lr")
        if len(valid):
            record["valid_mrr"] = model.rank(valid).mrr
        run.add(record, time.perf_counter() - start)
        bar.set_postfix({k: f"{v:.4f}" for k, v in record.items() if k != "epoch"})
        if s.checkpoint is not None:
            _save(s.checkpoint, run.state())
    bar.close()
    model.load_state_dict(run.best)
    return run.report


def _schedule(model: RuleModel, s: Settings, count: int) -> tuple[int, int]:
    """How many epochs, and how many of `count` queries in each."""
    per_epoch = min(count, s.max_queries or count)
    if s.epochs is not None:
        return s.epochs, per_epoch
    epochs = min(max(round(_STEPS * s.batch / per_epoch), 1), 6)
    if s.max_queries is None:
        affordable = defaults.affordable(model.walker(width=model.width), model.weights())
        if epochs * count > affordable:
            return 3, max(affordable // 3, 1)
    return epochs, per_epoch


def _made_of(
    model: RuleModel, training: TrainingQueries, valid: Tensor, s: Settings
) -> dict[str, Any]:
    """What the epochs of a run depend on, beside the cores."""
    graph = model.graph
    data = blake2b("\0".join((*graph.entities, "", *graph.relations)).encode(), digest_size=16)
    for ids in (graph.train, training.asked, valid):
        data.update(ids.numpy().tobytes() + b"|")
    kept = {name: value for name, value in asdict(s).items() if name not in _FREE}
    return {**kept, "scaling": model.scaling, "data": data.hexdigest()}


class TrainingQueries:
    """Every triple as two queries, and the known answers that do not compete."""

    def __init__(self, graph: KnowledgeGraph, train: Any = None) -> None:
        facts = torch.arange(len(graph.train))
        if train is not None:
            facts = _find(graph, as_triples(train, graph))
        if not len(facts):
            raise ValueError("there are no training triples")
        self.asked = both_ways(graph.train[facts], graph.num_relations)
        self.own = facts.repeat(2)
        self.known = KnownAnswers(graph.train, graph.num_relations, graph.num_entities)

    def __len__(self) -> int:
        return len(self.asked)

    def batches(self, s: Settings, queries: int, epoch: int, width: int) -> Iterator[Queries]:
        """The queries of an epoch; `width` of one relation stay together, where there are so many.

        But not more than a batch has.
        """
        width = min(width, s.batch)
        count = max(1, round(queries / s.batch))
        generator = torch.Generator().manual_seed(1_000_003 * s.seed + epoch)
        order = torch.randperm(len(self), generator=generator)[:queries]
        order = order[self.asked[order, 0].argsort(stable=True)]
        relation = self.asked[order, 0]
        first = torch.searchsorted(relation, relation)
        block = (torch.arange(len(order)) - first) // width + relation * len(order)
        _, block = block.unique_consecutive(return_inverse=True)
        batch = torch.randperm(int(block[-1]) + 1, generator=generator)[block] % count
        for number in range(count):
            chosen = order[batch == number]
            if len(chosen):
                yield make_queries(self.asked[chosen], self.known, self.own[chosen])


@dataclass
class _Run:
    """Where training is: all that a checkpoint holds."""

    model: RuleModel
    optimizer: torch.optim.Optimizer
    made_of: dict[str, Any]
    report: FitReport
    best: dict[str, Tensor]
    since_best: int

    def add(self, record: dict[str, float], seconds: float) -> None:
        self.report.history.append(record)
        self.report.seconds += seconds
        self.since_best += 1
        best = max((r.get("valid_mrr", -math.inf) for r in self.report.history[:-1]), default=-1.0)
        if record.get("valid_mrr", math.inf) > best:
            self.report.best_epoch, self.since_best = len(self.report.history), 0
            self.best = {name: x.clone() for name, x in self.model.state_dict().items()}

    def should_stop(self, patience: int) -> bool:
        return 0 < patience <= self.since_best

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "made_of": self.made_of,
            "report": asdict(self.report),
            "best": self.best,
            "since_best": self.since_best,
        }

    def restore(self, path: str | os.PathLike[str]) -> None:
        names = ("model", "optimizer", "made_of", "report", "best", "since_best")
        state = load_checkpoint(path, *names)
        changes = [
            f"{name}: {state['made_of'].get(name)!r} there, {value!r} here"
            for name, value in self.made_of.items()
            if state["made_of"].get(name) != value
        ]
        if changes:
            raise ValueError(f"{os.fspath(path)} is of another run: {'; '.join(changes)}")
        _load_cores(self.model, state["model"], path)
        self.optimizer.load_state_dict(state["optimizer"])
        self.report = FitReport(**state["report"])
        self.best, self.since_best = state["best"], state["since_best"]


def write_model(model: RuleModel, path: str | os.PathLike[str]) -> None:
    """Write the cores and what is needed to make the model anew."""
    if strange := [node for node in model.dag.nodes if not isinstance(node, int | str)]:
        raise TypeError(f"a file holds nodes that are integers or strings, got {strange[0]!r}")
    rank = dict(zip(model.dag.nodes, model._ranks(), strict=True))
    state = {
        "edges": [list(edge) for edge in model.dag.edges],
        "ranks": {v: rank[v] for v in model.dag.inner},
        "ties": "global" if len(model.structure.ranks) < len(model.dag.inner) else "node",
        "weights": model.weight_kind,
        "scaling": model.scaling,
        "relations": list(model.graph.relations),
        "cores": model.state_dict(),
    }
    _save(path, state)


def read_model(path: str | os.PathLike[str], graph: KnowledgeGraph) -> RuleModel:
    """A model from a file of `write_model`."""
    from tensus_tn.dag import Dag
    from tensus_tn.rules.model import RuleModel

    keys = ("edges", "ranks", "ties", "weights", "scaling", "relations", "cores")
    state = load_checkpoint(path, *keys)
    if tuple(state["relations"]) != graph.relations:
        raise ValueError(f"{path} was made for other relations: {state['relations'][:5]}...")
    model = RuleModel(
        graph,
        rank=state["ranks"] or 1,
        dag=Dag((tail, head) for tail, head in state["edges"]),
        ties=state["ties"],
        weights=state["weights"],
        scaling=state["scaling"],
        popularity="popularity" in state["cores"],
        dtype=state["cores"]["core_0"].dtype,
    )
    _load_cores(model, state["cores"], path)
    return model


def _load_cores(model: RuleModel, cores: dict[str, Tensor], path: str | os.PathLike[str]) -> None:
    try:
        model.load_state_dict(cores)
    except RuntimeError as error:
        raise ValueError(f"{os.fspath(path)} is of another model: {error}") from error


def _find(graph: KnowledgeGraph, triples: Tensor) -> Tensor:
    """Where triples stand among the training triples of a graph."""
    place = {tuple(row): k for k, row in enumerate(graph.train.tolist())}
    missing = [row for row in triples.tolist() if tuple(row) not in place]
    if missing:
        raise ValueError(
            f"{len(missing)} triples are not training triples of the graph: {missing[0]}, ..."
        )
    return torch.tensor([place[tuple(row)] for row in triples.tolist()], dtype=torch.long)


def _cosine(done: float) -> float:
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done))


def _progress_bar(total: int, initial: int, wanted: bool) -> Any:
    from tqdm import tqdm

    return tqdm(total=total, initial=initial, desc="rules", unit="step", disable=not wanted)


def _save(path: str | os.PathLike[str], state: dict[str, Any]) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    save_checkpoint(Path(path), state)
