"""What a fit says about itself, while it runs and when it is done."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tqdm import tqdm

# A fit that is done sooner than this, in seconds, shows no progress bar.
_DELAY = 2.0


@dataclass(frozen=True)
class Report:
    """How a fit by least squares went.

    Attributes:
        errors: The relative error `norm(model - data) / norm(data)` of the start that did best,
            before the first sweep and after each.
        error: The relative error of the result.
        converged: Whether it stopped because it could not get better, not at `max_sweeps`.
        seconds: The time that all starts took.
        seed: The seed of the random starts.
        restarts: How many starts were tried.

    Example:
        >>> print(Report((0.5, 1e-9), converged=True, seconds=0.25, seed=0, restarts=2))
        relative error 1.00e-09 after 1 sweep (converged), best of 2 starts, seed 0, 0.25 s
    """

    errors: tuple[float, ...] = field(repr=False)
    error: float = field(init=False)
    converged: bool
    seconds: float
    seed: int
    restarts: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "error", min(self.errors))

    def __str__(self) -> str:
        return (
            f"relative error {self.error:.2e} after {_sweeps(self.errors)} "
            f"({_outcome(self.converged)}), best of {self.restarts} starts, seed {self.seed}, "
            f"{self.seconds:.2f} s"
        )


@dataclass(frozen=True)
class LikelihoodReport:
    """How a fit by maximum likelihood went.

    Attributes:
        log_likelihoods: The mean log-likelihood of a sample, before the first sweep and after each.
        log_likelihood: The mean log-likelihood of a sample under the result.
        converged: Whether it stopped because it could not get better, not at `max_sweeps`.
        seconds: The time that it took.

    Example:
        >>> print(LikelihoodReport((-3.0, -2.5), converged=True, seconds=0.25))
        log-likelihood -2.5 per sample after 1 sweep (converged), 0.25 s
    """

    log_likelihoods: tuple[float, ...] = field(repr=False)
    log_likelihood: float = field(init=False)
    converged: bool
    seconds: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "log_likelihood", self.log_likelihoods[-1])

    def __str__(self) -> str:
        return (
            f"log-likelihood {self.log_likelihood:.6g} per sample after "
            f"{_sweeps(self.log_likelihoods)} ({_outcome(self.converged)}), "
            f"{self.seconds:.2f} s"
        )


def _sweeps(values: tuple[float, ...]) -> str:
    """How many sweeps led from the first value to the last."""
    return f"{len(values) - 1} sweep{'' if len(values) == 2 else 's'}"


def _outcome(converged: bool) -> str:
    return "converged" if converged else "stopped at max_sweeps"


def progress_bar(what: str, total: int, progress: bool | None) -> Any:
    """A bar that appears on long runs: always, never, or (None) where stderr is a terminal."""
    disable = None if progress is None else not progress
    return tqdm(total=total, desc=what, unit="sweep", leave=False, delay=_DELAY, disable=disable)
