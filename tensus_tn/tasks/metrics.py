"""Scores of predictions, by the same definitions as scikit-learn's."""

from __future__ import annotations

import torch
from torch import Tensor


def f1(predicted: Tensor, labels: Tensor, num_classes: int) -> tuple[float, float]:
    """Macro-F1 and micro-F1: `2 TP / (2 TP + FP + FN)`, per class and in all.

    Of classes (n,), those that occur neither among the labels nor among the predictions do not
    count. Where a node may have several, both are (n, num_classes), of 0 and 1; then such a class
    counts as 0, as in scikit-learn.

    Example:
        >>> f1(torch.tensor([0, 1, 1, 1]), torch.tensor([0, 1, 1, 0]), 2)
        (0.7333333333333334, 0.75)
    """
    if predicted.ndim == 2:
        both = (predicted * labels).sum(0).double()
        occurs = (predicted.long() + labels.long()).sum(0).double()
        each = 2 * both / occurs.clamp_min(1)
        return float(each.mean()), float(2 * both.sum() / occurs.sum().clamp_min(1))
    hits = predicted[predicted == labels].bincount(minlength=num_classes).double()
    total = (torch.cat([predicted, labels])).bincount(minlength=num_classes).double()
    present = total > 0  # 2 TP + FP + FN is how often a class is predicted or right
    macro = (2 * hits[present] / total[present]).mean()
    return float(macro), float(2 * hits.sum() / total.sum())


def association(predicted: Tensor, labels: Tensor) -> float:
    r"""How far predictions agree with labels beyond chance, in standard deviations.

    With 0/1 columns for all classes, centred: `sum(P * L) / sqrt(n sum(Cov_P * Cov_L))`, which is
    about a standard normal number where the two have nothing to do with each other.

    Args:
        predicted: 0/1 (n, num_classes).
        labels: The true classes, in the same form.

    Example:
        >>> classes = torch.eye(2)[torch.arange(100) % 2]
        >>> association(classes, classes)
        10.0
        >>> association(classes, classes.roll(1, 1))
        -10.0
        >>> association(classes, torch.ones(100, 2))  # there is nothing to agree with
        0.0
    """
    p, y = (x.double() - x.double().mean(0) for x in (predicted, labels))
    spread = ((p.T @ p) * (y.T @ y)).sum() / len(p)
    return float((p * y).sum() / spread.sqrt()) if spread > 0 else 0.0


def auc(positive: Tensor, negative: Tensor) -> float:
    """The chance that a positive score is above a negative one; a tie counts half.

    Example:
        >>> auc(torch.tensor([2.0, 1.0]), torch.tensor([1.0, 0.0]))
        0.875
    """
    ordered = negative.double().sort().values
    below, upto = (
        torch.searchsorted(ordered, positive.double(), right=right).double().mean()
        for right in (False, True)
    )
    return float((below + upto) / (2 * len(ordered)))
