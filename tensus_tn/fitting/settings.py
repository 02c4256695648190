"""What the fits by least squares can be told: how to descend, from how many starts, when to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Literal

from tensus_tn._arguments import check_size
from tensus_tn.dag import Dag, Edge
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
    nonnegative: bool
    callback: Callback | None
    progress: bool | None
    began: float = field(default_factory=perf_counter)

    def __post_init__(self) -> None:
        if self.method not in ("als", "gradient"):
            raise ValueError(f"method must be 'als' or 'gradient', got {self.method!r}")
        if self.nonnegative and self.method != "als":
            raise ValueError(f"nonnegative cores are found by method 'als', not {self.method!r}")
        check_size("restarts", self.restarts)
        check_size("max_sweeps", self.max_sweeps)
        if not self.tol >= 0:
            raise ValueError(f"tol must be a non-negative number, got {self.tol}")
        if self.callback is not None and not callable(self.callback):
            raise TypeError(f"callback must be callable, got {type(self.callback).__name__}")


def fixed_edges(dag: Dag, fixed: Iterable[Edge]) -> frozenset[int]:
    """The numbers of the edges whose cores are given: all but one at most.

    Example:
        >>> fixed_edges(Dag.path(3), [(1, 2)])
        frozenset({1})
    """
    edges = list(fixed)
    for edge in edges:
        if edge not in dag.edges:
            raise ValueError(f"fixed names {edge!r}, which is not among the edges {dag.edges}")
    if len(set(edges)) == len(dag.edges):
        raise ValueError("all edges are fixed: there is no core to find")
    return frozenset(map(dag.edges.index, edges))
