"""What the fits by least squares can be told: how to descend, from how many starts, when to stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Literal

from tensus_tn._arguments import check_size
from tensus_tn.network.tensor import DagTensor

Method = Literal["als", "gradient"]
Callback = Callable[[DagTensor, float], "bool | None"]


@dataclass(frozen=True)
class Settings:
    """The arguments that `decompose` and `complete` share, checked; and when the fit began."""

    method: Method
    restarts: int
    tol: float
    max_sweeps: int
    seed: int
    callback: Callback | None
    progress: bool | None
    began: float = field(default_factory=perf_counter)

    def __post_init__(self) -> None:
        if self.method not in ("als", "gradient"):
            raise ValueError(f"method must be 'als' or 'gradient', got {self.method!r}")
        check_size("restarts", self.restarts)
        check_size("max_sweeps", self.max_sweeps)
        if not self.tol >= 0:
            raise ValueError(f"tol must be a non-negative number, got {self.tol}")
        if self.callback is not None and not callable(self.callback):
            raise TypeError(f"callback must be callable, got {type(self.callback).__name__}")
