"""The commands `tensus-tn rules train`, `rank` and `show`."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path

from tensus_tn._files import write_json
from tensus_tn._run_folder import CHECKPOINT, MODEL, RESULT, open_run_folder
from tensus_tn.rules import export
from tensus_tn.rules.knowledge_graph import KnowledgeGraph
from tensus_tn.rules.model import RuleModel
from tensus_tn.rules.planted import planted_rules
from tensus_tn.rules.rule import Rule

FORMATS = {"json": export.to_json, "csv": export.to_csv, "anyburl": export.to_anyburl}


def run(arguments: argparse.Namespace) -> None:
    """Run one of the three commands; their flags are in `tensus_tn.cli`, where torch is not loaded."""
    {"train": _train, "rank": _rank, "show": _show}[arguments.rules_command](arguments)


def load_graph(data: str) -> KnowledgeGraph:
    """A graph by the name or path that `--data` takes."""
    return planted_rules() if data == "planted" else KnowledgeGraph.load(data)


def _train(arguments: argparse.Namespace) -> None:
    data = arguments.data
    if data != "planted" and os.path.exists(data):  # a path, to be found from other folders too
        data = os.path.abspath(data)
    graph = load_graph(data)
    out = Path(arguments.out or Path("runs") / f"rules-{_name_of(Path(data))}")
    with open_run_folder(out, resume=arguments.resume, overwrite=arguments.overwrite):
        _train_in(out, data, graph, arguments)


def _name_of(data: Path) -> str:
    return data.name if data.is_dir() else data.stem


def _train_in(out: Path, data: str, graph: KnowledgeGraph, arguments: argparse.Namespace) -> None:
    model = RuleModel(
        graph, arguments.steps, arguments.rank, ties=arguments.ties, weights=arguments.weights,
        seed=arguments.seed,
    ).to(arguments.device)  # fmt: skip
    print(f"{graph}\n{model.dag}, rank {arguments.rank}, {model.num_parameters} parameters")
    given = {name: getattr(arguments, name) for name in ("epochs", "lr", "batch")}
    report = model.fit(
        **{name: value for name, value in given.items() if value is not None},
        seed=arguments.seed,
        checkpoint=out / CHECKPOINT,
        resume=arguments.resume,
        progress=not arguments.quiet,
    )
    model.save(out / MODEL)
    result = {"data": data, "best_epoch": report.best_epoch, "seconds": report.seconds,
              "history": report.history, "parameters": model.num_parameters}  # fmt: skip
    print(report)
    if len(graph.test):
        ranking = model.rank()
        result["test"] = ranking.to_dict()
        print(ranking)
    write_json(out / RESULT, result)
    print(f"files in {out}; the rules:  tensus-tn rules show {out}")


def _restore(arguments: argparse.Namespace) -> RuleModel:
    folder = Path(arguments.run)
    if not (folder / MODEL).exists():
        raise FileNotFoundError(f"{folder} has no {MODEL}: is it the folder of a run?")
    graph = load_graph(_data_of(folder / RESULT))
    return RuleModel.load(folder / MODEL, graph).to(arguments.device)


def _data_of(result: Path) -> str:
    try:
        return str(json.loads(result.read_text())["data"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{result} is not the result of a run, or is damaged: {error}") from error


def _rank(arguments: argparse.Namespace) -> None:
    model = _restore(arguments)
    triples = getattr(model.graph, arguments.split)
    ranking = model.rank(triples, ties=arguments.ties)
    print(ranking)
    if arguments.per_relation:
        for name, m in ranking.per_relation().items():
            print(f"{name:40s} MRR {m['mrr']:.3f}  H@10 {m['hits@10']:.3f}")


def _show(arguments: argparse.Namespace) -> None:
    model = _restore(arguments)
    names = [arguments.relation] if arguments.relation else _most_frequent(model.graph)
    options = {"sort": arguments.sort, "negative": arguments.negative}
    rules = [rule for name in names for rule in model.rules(name, arguments.top, **options)]
    print(FORMATS[arguments.format](rules) if arguments.format != "text" else _text(rules))
    if arguments.figure:
        import matplotlib as mpl

        mpl.use("Agg")
        import matplotlib.pyplot as plt

        plt.sca(export.draw_rules(rules))
        plt.savefig(arguments.figure)
        plt.close()
        print(f"drawn to {arguments.figure}")


def _text(rules: Sequence[Rule]) -> str:
    head = f"{'weight':>8s}{'support':>9s}{'body':>9s}{'conf.':>7s}{'PCA':>7s}  rule"
    rows = [
        f"{r.weight:8.2f}{r.support:9d}{r.body_size:9d}{r.confidence:7.2f}{r.pca_confidence:7.2f}  {r}"
        for r in rules
    ]
    return "\n".join([head, *rows])


def _most_frequent(graph: KnowledgeGraph, count: int = 5) -> list[str]:
    order = graph.train[:, 1].bincount(minlength=graph.num_relations).argsort(descending=True)
    return [graph.relations[r] for r in order[:count].tolist()]
