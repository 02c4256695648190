"""The results of all runs in one file: a line a run, in the order of data set, method and seed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tensus_tn._files import lock_folder, make_folder, write_atomically

Result = dict[str, Any]
Key = tuple[str, str, int]


def read(path: Path) -> dict[Key, Result]:
    """All results that there are, by their data set, method and seed."""
    lines = path.read_text().splitlines() if path.exists() else []
    results = map(json.loads, lines)
    return {(result["data"], result["method"], result["seed"]): result for result in results}


def add(path: Path, result: Result) -> None:
    """Add a line. Two processes may do so at once; a kill leaves the old file or the new one."""
    key = (result["data"], result["method"], result["seed"])
    make_folder(path.parent)
    with lock_folder(path.parent, wait=True):  # the file itself is replaced
        results = {**read(path), key: result}
        lines = [json.dumps(results[key], separators=(",", ":")) + "\n" for key in sorted(results)]
        write_atomically(path, lambda file: file.write("".join(lines).encode()))
