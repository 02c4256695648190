"""The command line: `tensus-tn`, or `python -m tensus_tn`."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tensus_tn._version import __version__

if TYPE_CHECKING:
    from tensus_tn.distributed import Processes
    from tensus_tn.propagation.relation_graph import RelationGraph
    from tensus_tn.tasks import Config, Result, Task
    from tensus_tn.tasks.presets import Phase

# torch takes seconds to load, so nothing here loads it before a command is known.

PRESETS = ("diffmg",)
METHOD_NAMES = ("tensus", "cp", "diffmg", "gtn")  # those of tasks.comparison (a test compares)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0, 2 for wrong input, or 130 after Ctrl-C.

    Example:
        >>> main(["evaluate", "no such file"])  # the message goes to stderr
        2
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        arguments = _parser(argv).parse_args(argv)
        arguments.command(arguments)
    except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
        print(f"tensus-tn: error: {error}", file=sys.stderr)
        return 2
    except RuntimeError as error:
        if "alloc" not in str(error) and "out of memory" not in str(error):
            raise
        reason = str(error).partition("\n")[0]
        print(f"tensus-tn: error: not enough memory: {reason}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            "tensus-tn: interrupted; --resume goes on from the checkpoint, if there is one",
            file=sys.stderr,
        )
        return 130
    return 0


def _train(arguments: argparse.Namespace) -> None:
    from tensus_tn.tasks import run, run_average
    from tensus_tn.tasks.config import from_arguments

    config, k = from_arguments(arguments), arguments.average
    with _processes() as processes:
        if k > 1 and processes.size > 1:
            raise ValueError("--average is for one process: start without torchrun")
        result = run(config) if k == 1 else run_average(config, k)
    if processes.rank == 0:
        _print_result(result)


@contextmanager
def _processes() -> Iterator[Processes]:
    """Those of torchrun, if it started this, working together."""
    from tensus_tn.distributed import PeerError, init

    processes = init()
    try:
        yield processes
    except PeerError as error:  # torchrun starts all of them again, if it may
        print(f"tensus-tn: error: {error}", file=sys.stderr)
        sys.exit(1)
    except BaseException:
        processes.leave()
        raise
    processes.leave()


def _search(arguments: argparse.Namespace) -> None:
    arguments.average = 1
    _train(arguments)
    if arguments.out:
        found = ["tensus-tn", "train", "--data", arguments.data, "--meta-graph", arguments.out]
        print(f"\ntrain what was found:  {shlex.join(found)}")


def _evaluate(arguments: argparse.Namespace) -> None:
    from tensus_tn.tasks import Trainer, load_task, restore

    config, model = restore(arguments.checkpoint, arguments.device)
    task = load_task(config)
    trainer = Trainer(model, task, config)
    unscored = arguments.split == "test" and task.why_unscored(trainer.outputs("val", "test"))
    if unscored:
        raise ValueError(f"not scored: {unscored}")
    scores = trainer.evaluate(arguments.split)
    print(json.dumps({"split": arguments.split, **scores}, indent=1))


def _show(arguments: argparse.Namespace) -> None:
    from tensus_tn.tasks import best_meta_graphs, restore

    _, model = restore(arguments.checkpoint, arguments.device)
    several = best_meta_graphs(model, arguments.top)
    for k, meta_graphs in enumerate(several):
        for meta_graph in meta_graphs:
            tower = f"{('source', 'target')[k]}, " if len(several) > 1 else ""
            print(f"{tower}probability {meta_graph.probability:.3g}\n{meta_graph}\n")
        share = sum(meta_graph.probability for meta_graph in meta_graphs)
        print(f"together {100 * share:.3g} % of the whole\n")
    if arguments.figure:
        import matplotlib as mpl

        mpl.use("Agg")
        import matplotlib.pyplot as plt

        shown = [meta_graph for meta_graphs in several for meta_graph in meta_graphs]
        figure, axes = plt.subplots(
            len(shown), 1, squeeze=False, figsize=(7, 3 * len(shown)), layout="constrained"
        )
        for meta_graph, ax in zip(shown, axes[:, 0], strict=True):
            meta_graph.draw(ax)
            ax.set_title(f"probability {meta_graph.probability:.3g}")
        figure.savefig(arguments.figure)
        plt.close(figure)
        print(f"drawn to {arguments.figure}")


def _explore(arguments: argparse.Namespace) -> None:
    import webbrowser

    from tensus_tn.explorer.page import write_page
    from tensus_tn.tasks import load_task, restore
    from tensus_tn.tasks.models import explorer_views

    paths = [Path(checkpoint) for checkpoint in arguments.checkpoint]
    folders = [path if path.is_dir() else path.parent for path in paths]
    views = []
    for path, folder in zip(paths, folders, strict=True):
        config, model = restore(path, arguments.device)
        graph = _typed_graph(load_task(config)) if arguments.instances else None
        views += explorer_views(model, arguments.top, folder.name, graph)
    out = Path(arguments.out or folders[0] / "explore.html")
    write_page(out, views)
    print(f"written to {out}")
    if arguments.open:
        webbrowser.open(out.resolve().as_uri())


def _typed_graph(task: Task) -> RelationGraph:
    """The graph of a task, which knows one type alone, with the types of its nodes."""
    return replace(task.graph, node_counts=tuple(task.data.node_counts.items()))


def _compare(arguments: argparse.Namespace) -> None:
    from tensus_tn.tasks import METHODS, compare, load_task, table
    from tensus_tn.tasks.config import from_arguments

    config = from_arguments(arguments)
    task = load_task(config)
    methods = {name: METHODS[name] for name in arguments.methods}

    def report(name: str, result: Result) -> None:
        split, scored = ("test", result.test) if result.test else ("val", result.val)
        score = f"{split} {task.metric} {100 * scored[task.metric]:.2f}"
        print(f"{name}, seed {result.config['seed']}: {score}", flush=True)

    results = compare(config, task, range(arguments.seeds), methods, report)
    print(f"\n{config.data}, {arguments.seeds} seeds, mean +- standard deviation\n")
    print(table(results, task.metric))


def _bench(arguments: argparse.Namespace) -> None:
    from tensus_tn.tasks.bench import bench
    from tensus_tn.tasks.config import from_arguments

    print(bench(from_arguments(arguments), arguments.seconds))


def _print_result(result: Result) -> None:
    from tensus_tn.nn import MetaGraph

    for split, scored in (("val", result.val), ("test", result.test)):
        scores = "  ".join(f"{key} {value:.4f}" for key, value in scored.items())
        print(f"{split:<6} {scores or f'not scored: {result.unscored}'}")
    print(f"best epoch {result.best_epoch} of {result.epochs}, {result.seconds:.1f} s")
    for meta_graph in result.meta_graphs:
        print(f"\nmost probable meta-graph\n{MetaGraph.from_json(json.dumps(meta_graph))}")
    if result.config["out"]:
        print(f"\nfiles in {result.config['out']}")


def _verify(arguments: argparse.Namespace) -> None:
    from tensus_tn.verify import verify

    if not verify(arguments.device, arguments.out):
        sys.exit(1)


def _setting_flags(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    from tensus_tn.tasks.config import add_arguments

    parser.add_argument("--config", metavar="FILE", help="TOML file of settings; flags override it")
    if argv[0] != "search":
        parser.add_argument(
            "--preset", choices=PRESETS, help="DiffMG's settings in the place of the defaults"
        )
    add_arguments(parser, _defaults(argv))


def _train_flags(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    parser.add_argument(
        "--average", type=positive_integer, default=1, metavar="K",
        help="train so many networks, by this seed and those after it, and average their scores",
    )  # fmt: skip
    _setting_flags(parser, argv)


def _compare_flags(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    parser.add_argument(
        "--methods", nargs="+", choices=METHOD_NAMES, default=list(METHOD_NAMES), metavar="NAME",
        help=f"some of {', '.join(METHOD_NAMES)} (default: all)",
    )  # fmt: skip
    parser.add_argument("--seeds", type=positive_integer, default=3, help="how many (default: 3)")
    _setting_flags(parser, argv)


def _bench_flags(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="for each measurement (default: 5)"
    )
    _setting_flags(parser, argv)


def _evaluate_flags(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    from tensus_tn.data.typing import SPLITS

    _checkpoint_flags(parser)
    parser.add_argument(
        "--split", choices=SPLITS, default="test", help="which nodes (default: test)"
    )


def _show_flags(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    _checkpoint_flags(parser)
    parser.add_argument(
        "--top", type=positive_integer, default=1, help="how many of the best (default: 1)"
    )
    parser.add_argument("--figure", metavar="FILE", help="draw them, as PNG, PDF or SVG")


def _explore_flags(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    parser.add_argument("checkpoint", nargs="+", help="files, or folders of runs")
    _device_flag(parser)
    parser.add_argument(
        "--top", type=positive_integer, default=100, help="how many of the best (default: 100)"
    )
    parser.add_argument("--out", metavar="FILE", help="default: explore.html in the first folder")
    parser.add_argument(
        "--instances", action="store_true", help="load the data too, and list a few instances"
    )
    parser.add_argument(
        "--no-open", dest="open", action="store_false", help="write the page, but do not open it"
    )


def _checkpoint_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", help="file, or folder of a run")
    _device_flag(parser)


def _device_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", help="where to compute (default: as in the run)")


def _verify_flags(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    parser.add_argument("--device", help="what to check (default: cuda where it is, else cpu)")
    parser.add_argument(
        "--out", metavar="FILE", default="tensus-tn-verify.md", help="(default: %(default)s)"
    )


def _rules(arguments: argparse.Namespace) -> None:
    from tensus_tn.rules import cli

    cli.run(arguments)


def _rules_flags(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    parser.epilog = "Each of them takes --device, and -h lists its flags."
    commands = parser.add_subparsers(required=True, metavar="train|rank|show")
    train = commands.add_parser("train", help="learn the rules of a knowledge graph")
    train.set_defaults(rules_command="train")
    train.add_argument(
        "--data", default="planted", metavar="PATH",
        help="folder of train.txt, valid.txt, test.txt; a file of triples; .npz; or `planted`, an "
        "example that needs rank 2 (default: planted)",
    )  # fmt: skip
    train.add_argument("--steps", type=int, help="length of the rules (default: by the graph)")
    train.add_argument("--rank", type=int, default=4, help="(default: 4)")
    train.add_argument("--ties", choices=["node", "global"], default="node", help="global: CP")
    train.add_argument("--weights", choices=["signed", "softmax"], default="signed")
    train.add_argument("--epochs", type=int, help="(default: by the number of triples)")
    train.add_argument("--lr", type=float, help="learning rate of Adam")
    train.add_argument("--batch", type=int, help="queries of a step")
    train.add_argument("--seed", type=int, default=0)
    train.add_argument("--out", help="folder (default: runs/rules-NAME)")
    either = train.add_mutually_exclusive_group()
    either.add_argument("--resume", action="store_true", help="go on from the folder's checkpoint")
    either.add_argument("--overwrite", action="store_true", help="replace the run in the folder")
    train.add_argument("--quiet", action="store_true", help="no progress bar")
    rank = commands.add_parser("rank", help="rank the answers of a split, filtered")
    rank.set_defaults(rules_command="rank")
    rank.add_argument("run", help="folder of a run")
    rank.add_argument(
        "--split", choices=["train", "valid", "test"], default="test", help="(default: test)"
    )
    rank.add_argument(
        "--ties",
        choices=["random", "optimistic", "pessimistic", "mean"],
        default="random",
        help="(default: random)",
    )
    rank.add_argument("--per-relation", action="store_true")
    show = commands.add_parser("show", help="print, export and draw rules")
    show.set_defaults(rules_command="show")
    show.add_argument("run", help="folder of a run")
    show.add_argument("--relation", help="one relation (default: those with most triples)")
    show.add_argument("--top", type=int, default=5, help="rules of each relation (default: 5)")
    show.add_argument(
        "--sort", choices=["weight", "confidence", "pca_confidence", "support"], default="weight"
    )
    show.add_argument("--negative", action="store_true", help="rules that speak against an answer")
    show.add_argument("--format", choices=["text", "json", "csv", "anyburl"], default="text")
    show.add_argument("--figure", metavar="FILE", help="draw them, as PNG, PDF or SVG")
    for command in (train, rank, show):
        command.add_argument(
            "--device", default="cpu",
            help="where to compute: cpu, or cuda for small graphs, in plain PyTorch (default: cpu)",
        )  # fmt: skip


class Command(NamedTuple):
    """A command, and how its flags are added to a parser, given all arguments."""

    help: str
    run: Callable[[argparse.Namespace], None]
    add_flags: Callable[[argparse.ArgumentParser, Sequence[str]], None]


COMMANDS = {
    "train": Command(
        "train a network with its meta-graphs, or one that a search found", _train, _train_flags
    ),
    "search": Command(
        "search a meta-graph as DiffMG does, or by other settings", _search, _setting_flags
    ),
    "compare": Command("several methods and seeds in one table", _compare, _compare_flags),
    "bench": Command("time an epoch, and its parts, at several ranks", _bench, _bench_flags),
    "evaluate": Command("score a checkpoint on its data", _evaluate, _evaluate_flags),
    "show": Command("print and draw the meta-graphs of a checkpoint", _show, _show_flags),
    "explore": Command("a page to click through what was learned", _explore, _explore_flags),
    "rules": Command("learn, rank and show the rules of a knowledge graph", _rules, _rules_flags),
    "verify": Command(
        "check the kernels on this machine, time them, write a report", _verify, _verify_flags
    ),
}


def _parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tensus-tn", description="Learn meta-graphs of heterogeneous graphs."
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="command")
    for name, command in COMMANDS.items():
        # Without abbreviations: `_defaults` looks for --data and --config, and must see what is meant.
        sub = commands.add_parser(
            name, help=command.help, description=command.help.capitalize() + ".", allow_abbrev=False
        )
        sub.set_defaults(command=command.run)
        if argv[:1] == [name]:
            command.add_flags(sub, argv)
    return parser


def positive_integer(text: str) -> int:
    """As argparse takes it: its name is in the message for what is not one."""
    from tensus_tn._arguments import check_size

    return check_size("this", int(text))


def _defaults(argv: Sequence[str]) -> Config:
    """What a flag is when it is not given: from `--config`, from a preset, or in general."""
    from tensus_tn.data import has_pairs
    from tensus_tn.tasks import PAIRS, Config, preset
    from tensus_tn.tasks.config import read_toml

    name = argv[0]
    phase: Phase = "search" if name == "search" else "train"
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    early.add_argument("--config")
    early.add_argument("--data")
    early.add_argument("--preset")
    given, _ = early.parse_known_args(argv)
    file = read_toml(given.config) if given.config else {}
    chosen = given.preset or file.pop("preset", None)
    if chosen not in (None, *PRESETS):
        raise ValueError(f"preset must be one of {', '.join(PRESETS)}, got {chosen!r}")
    data = Config(data=given.data or file.get("data", Config.data)).data  # checked
    out = str(Path("runs") / f"{name}-{Path(data).stem}")
    if phase == "train" and data != "planted" and chosen is None:
        settings = dict(PAIRS) if has_pairs(data) else {}
    else:
        settings = preset(data, phase)
    return Config().with_values({**settings, "out": out, **file, "data": data})
