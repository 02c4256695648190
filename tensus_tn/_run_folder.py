"""The folder of a run: what stands in it, one process at a time, and no run lost by mistake."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tensus_tn._files import PARTIAL, lock_folder, make_folder

CHECKPOINT, RESULT, HISTORY = "checkpoint.pt", "result.json", "history.csv"
PREDICTIONS, MODEL = "predictions.txt", "model.pt"
_FILES = (CHECKPOINT, RESULT, HISTORY, PREDICTIONS, MODEL)


def require_no_run(folder: Path) -> None:
    """Refuse a folder that holds a run."""
    if held := [name for name in _FILES if (folder / name).exists()]:
        raise FileExistsError(
            f"{folder} holds a run already ({', '.join(held)}): go on with it (--resume), replace it "
            "(--overwrite), or choose another folder (--out)"
        )


@contextmanager
def open_run_folder(folder: Path, *, resume: bool, overwrite: bool) -> Iterator[None]:
    """Make the folder of a run, or take one that exists, for this process alone.

    What a killed process left half-written is removed.

    Raises:
        FileExistsError: If it holds a run, which is neither to be resumed nor to be overwritten.
        BlockingIOError: If another process is at work in it.
    """
    make_folder(folder)
    with lock_folder(folder, wait=False):
        for partial in folder.glob(f"*{PARTIAL}"):
            partial.unlink()
        if overwrite:
            for name in _FILES:
                (folder / name).unlink(missing_ok=True)
        elif not resume:
            require_no_run(folder)
        yield
