"""What a training shows of itself: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType

from tqdm import tqdm

_LINES = 10  # over all epochs, where there is no terminal


class Progress:
    """Shows how far a training is, on standard error.

    Args:
        title: What is trained.
        epochs: How many there will be.
        done: How many are done already.
        shown: Whether to show anything.

    Example:
        >>> with Progress("acm", epochs=3, shown=False) as progress:
        ...     progress.update(1, {"loss": "0.700"})
    """

    def __init__(self, title: str, epochs: int, done: int = 0, *, shown: bool = True) -> None:
        self._title, self._epochs = title, epochs
        self._lines = shown and not sys.stderr.isatty()
        self._bar = tqdm(
            total=epochs,
            initial=done,
            desc=title,
            leave=False,
            disable=not shown or self._lines,
        )

    def update(self, epoch: int, values: dict[str, str]) -> None:
        """One more epoch is done; `values` are shown beside it."""
        self._bar.set_postfix(values, refresh=False)
        self._bar.update()
        if self._lines and (epoch == 1 or epoch % max(1, self._epochs // _LINES) == 0):
            text = "  ".join(f"{name} {value}" for name, value in values.items())
            print(
                f"{self._title}  epoch {epoch}/{self._epochs}  {text}", file=sys.stderr, flush=True
            )

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.close()
