"""The command line: any flags and settings give results or a clear error, never a traceback."""

import contextlib
import io
import os
import random
import shutil
import tempfile
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from tensus_tn.cli import main
from tensus_tn.tasks import Config
from tests.fuzz.damage import damaged_bytes

QUICK = ["--epochs", "1", "--hidden", "4", "--steps", "2", "--no-progress"]
ODD = [
    "", "0", "-1", "1", "2", "3", "1e-3", "0.5", "nan", "inf", "-inf", "1e400", "1e-400", "True",
    "10000000000", "99999999999999999999", "a b", "é", "\x00", "--", "-", "None", "planted", "/", "..",
]  # fmt: skip


@cache
def sample_run() -> dict[str, bytes]:
    """The files of a short run."""
    with tempfile.TemporaryDirectory() as folder:
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            assert main(["train", *QUICK, "--out", folder]) == 0
        return {file.name: file.read_bytes() for file in Path(folder).iterdir() if file.is_file()}


def check(rng: random.Random) -> None:
    folder = tempfile.mkdtemp()
    try:
        os.chdir(folder)
        write_files(rng)
        call(random_command(rng))
    finally:
        os.chdir("/")
        shutil.rmtree(folder)


def write_files(rng: random.Random) -> None:
    """A run, perhaps damaged, and a file of settings."""
    Path("run").mkdir()
    for name, content in sample_run().items():
        changed = damaged_bytes(rng, content) if rng.random() < 0.2 else content
        (Path("run") / name).write_bytes(changed)
    Path("a file").write_bytes(rng.randbytes(rng.choice([0, 10, 1000])))
    settings = "\n".join(f"{name} = {value}" for name, value in random_settings(rng))
    text = settings.encode()
    Path("settings.toml").write_bytes(damaged_bytes(rng, text) if rng.random() < 0.2 else text)


def call(argv: list[str]) -> None:
    """The exit code is 0 or 2, and 2 comes with a message."""
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            code = main(argv)
        except SystemExit as stop:
            code = stop.code
    said = errors.getvalue()
    assert code in (0, 2), f"{argv} gave {code}: {said}"
    assert code == 0 or "error:" in said, f"{argv} said only {said!r}"


def random_command(rng: random.Random) -> list[str]:
    name = rng.choice(["train", "train", "search", "compare", "bench", "evaluate", "show", "other"])
    if name in ("evaluate", "show"):
        options = {"--top": ["1", "2", *ODD], "--figure": ["a.svg", "a.xyz", "no/a.svg", ""]}
        if name == "evaluate":
            options = {"--split": ["train", "val", "test", *ODD]}
        return [name, rng.choice(["run", "run/checkpoint.pt", *ODD]), *random_options(rng, options)]
    command = [name, *QUICK, *(word for pair in random_flags(rng) for word in pair)]
    if name == "bench":
        command += ["--seconds", rng.choice(["0.001", "0", "nan", "-1", "x"])]
    if name == "compare":
        command += ["--methods", "gtn", "--seeds", rng.choice(["1", "1", "0", "-1", "x"])]
    if rng.random() < 0.3:
        command += ["--config", rng.choice(["settings.toml", "a file", "run", "none"])]
    if rng.random() < 0.1:
        command.insert(rng.randrange(len(command) + 1), rng.choice(ODD))
    return command


def random_options(rng: random.Random, options: dict[str, list[str]]) -> list[str]:
    return [
        w
        for flag, values in options.items()
        if rng.random() < 0.5
        for w in (flag, rng.choice(values))
    ]


def random_flags(rng: random.Random) -> list[list[str]]:
    hints = get_type_hints(Config)
    flags = []
    for field in rng.sample(fields(Config), rng.randint(0, 4)):
        flag, kind = "--" + field.name.replace("_", "-"), hints[field.name]
        if kind is bool:
            flags.append([flag if rng.random() < 0.5 else flag.replace("--", "--no-", 1)])
        else:
            flags.append([flag, random_text(rng, field.name, kind)])
    return flags


def random_text(rng: random.Random, name: str, kind: Any) -> str:
    """Mostly a value that fits."""
    if rng.random() < 0.4:
        return rng.choice(ODD)
    if name in ("out", "meta_graph"):
        return rng.choice(["run", "new", "a file", "run/checkpoint.pt", ""])
    if name == "data":
        return rng.choice(["planted", "a file", "run", "dblp", ""])
    if get_origin(kind) is Literal:
        return str(rng.choice(get_args(kind)))
    return str(rng.randint(1, 3)) if kind is int else rng.choice(["0", "0.1", "0.9"])


def random_settings(rng: random.Random) -> list[tuple[str, str]]:
    hints = get_type_hints(Config)
    values = []
    for field in rng.sample(fields(Config), rng.randint(0, 4)):
        text = random_text(rng, field.name, hints[field.name])
        quoted = rng.choice([text, repr(text), "true", "[1, 2]", "1979-05-27"])
        values.append((rng.choice([field.name, field.name, "unknown"]), quoted))
    return values
