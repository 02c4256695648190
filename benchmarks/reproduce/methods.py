"""Each method as a function from data set and seed to what came out of it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import torch
from torch import nn

from benchmarks.reproduce.candidates import PairScore, make_score
from benchmarks.reproduce.genetic import genetic_search
from benchmarks.reproduce.gtn import Gtn
from benchmarks.reproduce.labels import with_more_labels
from benchmarks.reproduce.metapath2vec import classify, walk_vectors
from benchmarks.reproduce.pair_features import regression
from benchmarks.reproduce.pairs import LAYERS, PairPeer
from benchmarks.reproduce.peers import PEERS, Peer
from benchmarks.reproduce.settings import (
    ALTERNATING,
    AVERAGED,
    BUDGET,
    CHOSEN,
    DIFFMG_RESTARTS,
    GEMS,
    GTN_COMMANDS,
    GTN_SETTINGS,
    GTN_STEPS,
    MORE_LABELS,
    NODES,
    PAIR_PATIENCE,
    PATIENT,
    PEER_GRID,
    PUBLISHED,
    SOFT,
    TUNED,
    WALK_PATHS,
    WALKS,
)
from tensus_tn import Dag, DagTensor
from tensus_tn.dag import Edge
from tensus_tn.data import Normalisation, load
from tensus_tn.nn import MetaGraph, TwoTowers, average
from tensus_tn.tasks import PAIRS as RECOMMENDATION
from tensus_tn.tasks import (
    Config,
    Result,
    Task,
    Trainer,
    best_meta_graphs,
    build_model,
    cross_entropy_search,
    equal_rank,
    fit,
    make_task,
    preset,
    restore,
    run,
    run_average,
)
from tensus_tn.tasks.config import Inputs
from tensus_tn.tasks.task import LinkPrediction, NodeClassification

Outcome = dict[str, Any]
Method = Callable[[str, Task, int], Outcome]

_RECORDED = (
    "lr", "weight_decay", "dropout", "state_dropout", "norm", "input_activation", "rank", "updates",
    "core_lr",
)  # fmt: skip
_PUBLISHED_LINKS = [(k, k + 1) for k in range(4)] + [
    (j, k) for k in range(2, 5) for j in range(k - 1)
]


def searched(data: str, task: Task, seed: int, *, rank: int, ties: str) -> Outcome:
    """Draw meta-graphs from the tensor, refit it to the best by validation; train the finalists."""
    config, finalists, found = _finalists(data, task, seed, rank, ties)
    return _best([_derived(config, task, chosen) for chosen in finalists]) | found


def averaged_meta_graphs(data: str, task: Task, seed: int) -> Outcome:
    """The same search, but the scores of all finalists are averaged."""
    config, finalists, found = _finalists(data, task, seed, 2, "node")
    start, models, results = time.process_time(), [], []
    for chosen in finalists:
        torch.manual_seed(seed)
        models.append(build_model(config, task.spec, chosen))
        results.append(fit(models[-1], task, config, chosen))
    trainer = Trainer(average(models), task, config)
    scores = {split: trainer.evaluate(split) for split in ("val", "test")}
    result = replace(results[0], **scores)
    return _outcome(result, task, time.process_time() - start) | found


def averaged_seeds(data: str, task: Task, seed: int) -> Outcome:
    """The library's defaults with several seeds, the scores of all averaged."""
    start = time.process_time()
    config = Config(data=data, seed=AVERAGED * seed, progress=False)
    task = _recipe_task(data, config.normalisation, config.input_names(), config.even)
    return _outcome(run_average(config, AVERAGED, task), task, time.process_time() - start)


Found = tuple[Config, list[list[list[MetaGraph]]], Outcome]


def _finalists(data: str, task: Task, seed: int, rank: int, ties: str) -> Found:
    """The settings, the best meta-graphs of a search, and what there is to say of it."""
    config = _equal_parameters(_config(data, seed, rank=rank, ties=ties), task)
    budget, start = BUDGET[data], time.process_time()
    tensors = _tensors(config, task)
    score = make_score(config, task, budget.epochs)
    found, history = cross_entropy_search(
        tensors,
        lambda meta_graphs: score(meta_graphs, seed),
        rounds=budget.rounds,
        batch=budget.batch,
        seed=seed,
    )
    seconds = time.process_time() - start
    finalists = [[[m] for m in candidate.meta_graphs] for candidate in found[: budget.finalists]]
    cores = sum(tensor.num_parameters for tensor in tensors)
    said = {"search": history, "search_seconds": seconds, "core_parameters": cores}
    return config, finalists, said


def diffmg(data: str, task: Task, seed: int) -> Outcome:
    """As published: sampled search at rank 1, then the arg-max trained, DiffMG's own settings."""
    config, start = _config(data, seed, tuned=False, rank=1), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        run(config.with_values({**preset(data, "search"), "out": folder}), task)
        chosen = best_meta_graphs(restore(folder)[1], 1)
    seconds = time.process_time() - start
    return _derived(config, task, chosen) | {"search_seconds": seconds}


def diffmg_restarts(data: str, task: Task, seed: int) -> Outcome:
    """The best by validation of several searches of DiffMG: about the budget of our search."""
    outcomes = [diffmg(data, task, DIFFMG_RESTARTS * seed + k) for k in range(DIFFMG_RESTARTS)]
    seconds = sum(outcome["search_seconds"] for outcome in outcomes)
    return _best(outcomes) | {"search_seconds": seconds}


def published(data: str, task: Task, seed: int, *, tuned: bool) -> Outcome:
    """The meta-graph that DiffMG's authors chose among their searches, with their or our settings."""
    config = _config(data, seed, tuned=tuned, rank=1)
    return _derived(config, task, _published(data, task.graph.relation_names))


def _published(data: str, names: Sequence[str]) -> list[list[MetaGraph]]:
    chosen = []
    for steps, skips in PUBLISHED[data]:
        numbers = [*steps, *skips]
        links: dict[Edge, str] = dict(
            zip(_PUBLISHED_LINKS, (names[i] for i in numbers), strict=True)
        )
        chosen.append([MetaGraph(Dag.complete(4), links)])
    return chosen


def gems(data: str, task: Task, seed: int) -> Outcome:
    """A genetic search over meta-graphs by short trainings; the best is trained in full."""
    config, start = _config(data, seed, tuned=False, rank=1), time.process_time()
    assert isinstance(task, LinkPrediction)
    score = PairScore(config, task, GEMS.epochs)
    found, history = genetic_search(
        _tensors(config, task),
        lambda meta_graphs: score(meta_graphs, seed),
        generations=GEMS.rounds,
        population=GEMS.batch,
        seed=seed,
    )
    seconds = time.process_time() - start
    finalists = [[[m] for m in candidate.meta_graphs] for candidate in found[: GEMS.finalists]]
    outcome = _best([_derived(config, task, chosen) for chosen in finalists])
    return outcome | {"search": history, "search_seconds": seconds}


def soft(data: str, task: Task, seed: int, **changes: Any) -> Outcome:
    """All relations weighted, cores trained with the network as in the paper, nothing derived."""
    config = _config(data, seed, tuned=False, **{**SOFT[data], **changes})
    config = _equal_parameters(config, task)
    torch.manual_seed(seed)
    model = build_model(config, task.spec)
    cores = sum(core.numel() for core in model.arch_parameters())
    return _trained(model, task, config) | {"core_parameters": cores}


def recipe(data: str, task: Task, seed: int, **changes: Any) -> Outcome:
    """The library's defaults as they are, for nodes or for pairs: soft, one training, no search."""
    settings = {} if data in NODES else dict(RECOMMENDATION)
    config = Config(data=data, seed=seed, progress=False).with_values({**settings, **changes})
    task = _recipe_task(data, config.normalisation, config.input_names(), config.even)
    return _by_defaults(config, task)


def more_labels(data: str, task: Task, seed: int) -> Outcome:
    """The defaults with test nodes among the training ones; scored on the others."""
    config = Config(data=data, seed=seed, progress=False)
    known = with_more_labels(load(data), MORE_LABELS[data], seed)
    return _by_defaults(config, make_task(known, config.normalisation, even=config.even))


def _by_defaults(config: Config, task: Task) -> Outcome:
    config = _equal_parameters(config, task)
    torch.manual_seed(config.seed)
    model = build_model(config, task.spec)
    cores = sum(core.numel() for core in model.arch_parameters())
    return _trained(model, task, config) | {"core_parameters": cores}


def recipe_published(data: str, task: Task, seed: int) -> Outcome:
    """DiffMG's published meta-graph with the library's defaults for pairs."""
    config, task = _pair_recipe(data, seed)
    return _derived(config, task, _published(data, task.graph.relation_names))


def no_propagation(data: str, task: Task, seed: int) -> Outcome:
    """The library's defaults for pairs over a meta-graph that is the identity alone."""
    config, task = _pair_recipe(data, seed)
    identity = MetaGraph(Dag.path(1), {(0, 1): "identity"})
    return _derived(config, task, [[identity], [identity]])


def pair_peer(data: str, task: Task, seed: int, *, name: str) -> Outcome:
    """Another network, or the bias alone, with the library's inputs and loss for pairs."""
    config, task = _pair_recipe(data, seed)
    torch.manual_seed(seed)
    layers = LAYERS[name](task.data, config.hidden) if name in LAYERS else None
    model = PairPeer(task, layers, config.hidden, config.dropout, degrees=name != "bias")
    return _trained(model, task, config)


def pair_regression(data: str, task: Task, seed: int) -> Outcome:
    """A logistic regression on what can be counted of a pair; nothing of it is random."""
    assert isinstance(task, LinkPrediction)
    start = time.process_time()
    scores = {split: 100 * value for split, value in regression(task).items()}
    seconds = time.process_time() - start
    return {**scores, "criterion": -scores["val"] / 100, "train_seconds": seconds}


def _pair_recipe(data: str, seed: int) -> tuple[Config, Task]:
    """The library's settings for pairs, and their task."""
    config = Config(data=data, seed=seed, progress=False, **RECOMMENDATION)
    return config, _recipe_task(data, config.normalisation, config.input_names(), config.even)


@cache
def _recipe_task(data: str, normalisation: Normalisation, inputs: Inputs, even: bool) -> Task:
    return make_task(load(data), normalisation, inputs=inputs, even=even)


def gtn(data: str, task: Task, seed: int) -> Outcome:
    """A path of rank 1, soft, in DiffMG's network."""
    return soft(data, task, seed, topology="path", steps=GTN_STEPS[data], rank=1)


def gtn_published(data: str, task: Task, seed: int, *, rank: int) -> Outcome:
    """GTN's own network and training; at a higher rank, TENSUS on its path (eq. 9)."""
    layers, epochs = GTN_COMMANDS[data]
    changes = {**GTN_SETTINGS, "epochs": epochs, "rank": rank}
    config = Config(data=data, seed=seed, progress=False).with_values(changes)
    torch.manual_seed(seed)
    model = Gtn(task.data, layers + 1, rank)
    cores = sum(p.numel() for p in model.channels.parameters())
    return _trained(model, task, config) | {"core_parameters": cores}


def metapath2vec(data: str, task: Task, seed: int) -> Outcome:
    """PyG's, and logistic regression on the vectors, its penalty by validation."""
    assert isinstance(task, NodeClassification)
    torch.manual_seed(seed)
    start = time.process_time()
    scores = classify(task, walk_vectors(task.data, WALK_PATHS[data], WALKS))
    return {
        "val": scores["val"], "test": scores["test"], "criterion": -scores["val"], "curve": [],
        "meta_graphs": [], "train_seconds": time.process_time() - start,
    }  # fmt: skip


def peer(data: str, task: Task, seed: int, *, name: str) -> Outcome:
    """Another network; of its settings the best by validation."""
    outcomes = []
    for changes in _peer_settings(name, data, seed):
        config = _config(data, seed, tuned=False, **changes)
        torch.manual_seed(seed)
        layers = PEERS[name](task.data, config.hidden)
        model: nn.Module = Peer(task, layers, config.hidden, config.dropout)
        outcomes.append(_trained(model, task, config))
    return _best(outcomes)


def _peer_settings(name: str, data: str, seed: int) -> Sequence[dict[str, Any]]:
    """The whole grid; for further seeds only what the first one chose of it, where that is known."""
    chosen = CHOSEN.get(name, {}).get(data)
    settings = PEER_GRID if seed == 0 or chosen is None else [PEER_GRID[chosen]]
    longer = PATIENT.get(name, {}) if data in NODES else {}
    return [{**setting, **longer} for setting in settings]


METHODS: dict[str, Method] = {
    "tensus": partial(searched, rank=2, ties="node"),
    "cp": partial(searched, rank=2, ties="global"),
    "diffmg": diffmg,
    "diffmg-restarts": diffmg_restarts,
    "published": partial(published, tuned=False),
    "published-tuned": partial(published, tuned=True),
    "rank1": partial(searched, rank=1, ties="node"),
    "gtn": gtn,
    "gtn-published": partial(gtn_published, rank=1),
    "gtn-tensus": partial(gtn_published, rank=2),
    "metapath2vec": metapath2vec,
    "average-seeds": averaged_seeds,
    "average-meta-graphs": averaged_meta_graphs,
    "more-labels": more_labels,
    "soft": partial(soft, rank=2),
    "soft-cp": partial(soft, rank=2, ties="global"),
    "soft-rank1": partial(soft, rank=1),
    "recipe": partial(recipe, rank=2),
    "recipe-cp": partial(recipe, rank=2, ties="global"),
    "recipe-rank1": partial(recipe, rank=1),
    **{f"recipe-d{d}": partial(recipe, rank=d) for d in (3, 4, 5)},
    "alternating": partial(soft, rank=2, **ALTERNATING),
    "alternating-cp": partial(soft, rank=2, ties="global", **ALTERNATING),
    "alternating-rank1": partial(soft, rank=1, **ALTERNATING),
    "recipe-published": recipe_published,
    "recipe-none": no_propagation,
    **{f"recipe-{name}": partial(pair_peer, name=name) for name in ("bias", "degrees", *LAYERS)},
    "recipe-regression": pair_regression,
    "gems": gems,
    **{name: partial(peer, name=name) for name in PEERS},
    **{f"tensus-d{d}": partial(searched, rank=d, ties="node") for d in (3, 4, 5)},
}


def _config(data: str, seed: int, *, tuned: bool = True, **changes: Any) -> Config:
    values = {**preset(data), **(TUNED[data] if tuned else {}), **changes}
    if data not in NODES:
        values["patience"] = PAIR_PATIENCE
    return Config(data=data, seed=seed, progress=False).with_values(values)


def _equal_parameters(config: Config, task: Task) -> Config:
    """CP with the rank that gives it about as many core parameters as TENSUS; all else unchanged."""
    if config.ties == "node":
        return config
    return config.with_values({"rank": equal_rank(config.with_values({"ties": "node"}), task)})


def _tensors(config: Config, task: Task) -> list[DagTensor]:
    model = build_model(config, task.spec)
    nets = [model.source, model.target] if isinstance(model, TwoTowers) else [model]
    return [net.layers[0].tensor for net in nets]


def _derived(config: Config, task: Task, chosen: Sequence[Sequence[MetaGraph]]) -> Outcome:
    """Train the network of given meta-graphs from scratch."""
    torch.manual_seed(config.seed)
    return _trained(build_model(config, task.spec, chosen), task, config, chosen)


def _trained(model: nn.Module, task: Task, config: Config, *chosen: Any) -> Outcome:
    start = time.process_time()
    result = fit(model, task, config, *chosen)
    return _outcome(result, task, time.process_time() - start)


def _outcome(result: Result, task: Task, seconds: float) -> Outcome:
    return {
        "val": 100 * result.val[task.metric],
        "test": 100 * result.test[task.metric],
        # what the protocol chooses the epoch by: the loss for nodes, the AUC for pairs
        "criterion": -result.val["auc"] if task.metric == "auc" else result.val["loss"],
        "best_epoch": result.best_epoch,
        "curve": [round(100 * record[f"val_{task.metric}"], 2) for record in result.history],
        "meta_graphs": result.meta_graphs,
        "train_seconds": seconds,
        "settings": {key: result.config[key] for key in _RECORDED},
    }


def _best(outcomes: Sequence[Outcome]) -> Outcome:
    """The one that validation prefers; its time is that of all."""
    seconds = sum(outcome["train_seconds"] for outcome in outcomes)
    return min(outcomes, key=lambda outcome: outcome["criterion"]) | {"train_seconds": seconds}
