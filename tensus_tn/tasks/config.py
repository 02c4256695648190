"""Every setting of a run with its default, from Python, a TOML file or the command line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from tensus_tn.data.typing import NodeTypes, Normalisation

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

InputName = Literal["features", "id", "degree", "spectral"]
Inputs = Sequence[InputName]
#: All that a network can see of the ends of pairs.
ALL_INPUTS: Inputs = get_args(InputName)


def _option(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class Config:
    """The settings of one run; `preset` has those of DiffMG.

    Example:
        >>> config = Config(data="planted", rank=2)
        >>> config.with_values({"rank": 1, "lr": 0.1}).rank
        1
        >>> config.with_values({"ranks": 1})
        Traceback (most recent call last):
        ValueError: unknown setting 'ranks'; did you mean 'rank'?
    """

    data: str = _option("planted", "name of a data set, or path of a file or folder")
    node_types: NodeTypes = _option("true", "node types; DiffMG's are wrong on DBLP")  # noqa: RUF009
    split_seed: int = _option(
        0, "of the draw of validation nodes, where the data leave it open (HGB)"
    )
    missing: Literal["one-hot", "none"] = _option(
        "one-hot", "of types without features (HGB): nodes told apart by their ids, or all alike"
    )
    even: bool = _option(True, "words that nodes have: rows are scaled to the same length")
    normalisation: Normalisation = _option("row", "rows of A, of A + I as in DiffMG, or none")  # noqa: RUF009
    divide: bool = _option(True, "states are means over the paths that arrive, not sums")

    topology: Literal["complete", "path"] = _option("path", "links between states")
    steps: int = _option(4, "states after the first one")
    rank: int = _option(2, "rank of the states; 1 is DiffMG (GTN on a path)")
    ties: Literal["node", "global"] = _option("node", "a rank index for each state, or one (CP)")
    init_scale: float = _option(0.1, "standard deviation of the initial logits of the cores")
    hidden: int = _option(64, "size of the states")
    affine: bool = _option(False, "an affine map between input projection and propagation")
    head: Literal["mlp", "linear"] = _option("mlp", "from states to classes: two layers, or one")
    dropout: float = _option(0.7, "on the features, and on what enters the head")
    state_dropout: float = _option(0.0, "on the projected input, as in DiffMG")
    norm: Literal["affine", "plain", "none"] = _option("none", "layer norm after the propagation")
    activation: Literal["relu", "gelu"] = _option("relu", "after the layer norm")
    input_activation: Literal["none", "tanh"] = _option("none", "after the input projection")

    inputs: str = _option(
        "features", "of pairs: what is seen of nodes, some of features,id,degree,spectral"
    )
    bias: bool = _option(False, "of pairs: a bias for either end, from ids and degrees")

    search: Literal["soft", "sampled", "gumbel"] = _option(
        "soft", "all relations weighted; or one per link, epsilon-greedy as in DiffMG, or by Gumbel"
    )
    updates: Literal["joint", "alternating"] = _option(
        "joint", "cores with the weights, or on the validation loss in turns with them"
    )
    meta_graph: str = _option(
        "", "checkpoint or folder of a search: train only its best meta-graph"
    )
    top: int = _option(1, "with `meta-graph`: how many of its best to mix")
    epochs: int = _option(150, "how many epochs at most")
    batch_size: int = _option(
        0,
        "labelled nodes in a training step, or positive pairs with as many negative ones, shared among "
        "processes; 0: all of them at once",
    )
    fan_out: str = _option(
        "",
        "of batches: edges that a node keeps of a relation, for each step, as 10,5; -1: all",
    )
    lr: float = _option(0.005, "learning rate of the weights (Adam)")
    weight_decay: float = _option(0.001, "weight decay of the weights (Adam)")
    bias_lr: float = _option(0.03, "learning rate of the biases of pairs")
    bias_weight_decay: float = _option(5e-5, "weight decay of the biases of pairs")
    core_lr: float = _option(0.05, "learning rate of the cores (Adam)")
    epsilon: float = _option(0.0, "sampled: the chance of a random meta-graph in the first epoch")
    epsilon_decay: float = _option(0.9, "factor of epsilon after every epoch")
    select: Literal["loss", "metric", "last"] = _option(
        "loss", "keep the epoch of lowest validation loss, of best validation metric, or the last"
    )
    patience: int = _option(30, "epochs without improvement before stopping; 0: never stop")
    seed: int = _option(0, "for initial values, dropout and draws")
    device: str = _option("cpu", "where to compute: cpu, cuda, cuda:1")

    out: str = _option("", "folder for checkpoint, results and logs; none are written if empty")
    checkpoint_every: int = _option(10, "epochs between checkpoints")
    resume: bool = _option(False, "go on from the checkpoint in `out`, if there is one")
    overwrite: bool = _option(False, "replace the run in `out`, if there is one")
    progress: bool = _option(True, "show a progress bar, on a terminal")
    tensorboard: bool = _option(False, "write TensorBoard logs to `out`")

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for f in fields(self):
            _check(f.name, getattr(self, f.name), hints[f.name])
        for name in ("steps", "rank", "hidden", "top", "epochs", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        for name in ("dropout", "state_dropout", "epsilon", "epsilon_decay"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be between 0 and 1, got {getattr(self, name)}")
        for name in (
            "lr", "core_lr", "bias_lr", "weight_decay", "bias_weight_decay", "init_scale", "patience",
            "batch_size",
        ):  # fmt: skip
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if self.resume and self.overwrite:
            raise ValueError("a run is either resumed or overwritten, not both")
        if self.fan_out and not self.batch_size:
            raise ValueError("fan_out is of batches: give a batch_size")
        self.hops()
        self.input_names()
        if self.device != "cpu":
            self._check_device()

    def _check_device(self) -> None:
        import torch  # here, because it takes seconds to load: the help of a command does without it

        try:
            torch.device(self.device)
        except RuntimeError as error:
            raise ValueError(
                f"device {self.device!r} is not one that torch knows: {error}"
            ) from None

    def hops(self) -> list[int]:
        """The fan-outs, one for each step; one number is that of all steps.

        Example:
            >>> Config(batch_size=64, fan_out="10,5", steps=2).hops()
            [10, 5]
        """
        try:
            numbers = [int(text) for text in (self.fan_out or "-1").split(",")]
        except ValueError:
            raise ValueError(f"fan_out must be numbers, as 10,5, got {self.fan_out!r}") from None
        numbers = numbers * self.steps if len(numbers) == 1 else numbers
        if len(numbers) != self.steps or min(numbers) < -1:
            raise ValueError(
                f"fan_out must be a number of edges (-1: all) for each of {self.steps} steps, got "
                f"{self.fan_out!r}"
            )
        return numbers

    def input_names(self) -> Inputs:
        """The inputs of pairs, one by one.

        Example:
            >>> Config(inputs="id,degree").input_names()
            ('id', 'degree')
        """
        names = tuple(self.inputs.split(","))
        if not set(names) <= set(ALL_INPUTS):
            raise ValueError(f"inputs must be some of {','.join(ALL_INPUTS)}, got {self.inputs!r}")
        return cast(Inputs, names)

    def with_values(self, values: Mapping[str, Any]) -> Config:
        """The same settings but for some."""
        known = [f.name for f in fields(self)]
        for name in values:
            if name not in known:
                raise ValueError(f"unknown setting {name!r}{_suggestion(name, known)}")
        return replace(self, **values)

    def to_dict(self) -> dict[str, Any]:
        """All settings, as plain values."""
        return asdict(self)


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The settings in a TOML file."""
    with open(path, "rb") as file:
        try:
            values: dict[str, Any] = tomllib.load(file)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{os.fspath(path)}: {error}") from error
    return values


def add_arguments(parser: argparse.ArgumentParser, defaults: Config) -> None:
    """A flag for every setting; `--help` shows the defaults."""
    hints = get_type_hints(Config)
    for f in fields(Config):
        kind, flag = hints[f.name], "--" + f.name.replace("_", "-")
        options: dict[str, Any] = {"default": getattr(defaults, f.name), "help": _help(f, defaults)}
        if kind is bool:
            options["action"] = argparse.BooleanOptionalAction
        elif get_origin(kind) is Literal:
            options["choices"] = get_args(kind)
        else:
            options.update(type=kind, metavar=kind.__name__.upper())
        parser.add_argument(flag, **options)


def from_arguments(arguments: argparse.Namespace) -> Config:
    """The settings that a parser with `add_arguments` found."""
    return Config(**{f.name: getattr(arguments, f.name) for f in fields(Config)})


def _help(f: Any, defaults: Config) -> str:
    assert f.default is not MISSING
    value = getattr(defaults, f.name)
    return f"{f.metadata['help']} (default: {'none' if value == '' else value})".replace("%", "%%")


def _check(name: str, value: Any, kind: Any) -> None:
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise ValueError(f"{name} must be one of {get_args(kind)}, got {value!r}")
    elif kind is float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(f"{name} must be a number, got {value!r}")
    elif type(value) is not kind:
        raise TypeError(f"{name} must be of type {kind.__name__}, got {value!r}")


def _suggestion(name: str, known: Sequence[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(known)}"
