"""How far a mean over seeds may be from the mean over all."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import stdev

from scipy.stats import t as student


def half_width(values: Sequence[float]) -> float:
    """Half of the 95 % confidence interval of the mean, by Student's t; 0 where there is but one."""
    if len(values) < 2:
        return 0.0
    return float(student.ppf(0.975, len(values) - 1)) * stdev(values) / len(values) ** 0.5
