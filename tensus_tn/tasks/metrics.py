"""Scores of predictions, by the same definitions as scikit-learn's."""

from __future__ import annotations

import torch
from torch import Tensor


def f1(predicted: Tensor, labels: Tensor, num_classes: int) -> tuple[float, float]:
    """Macro-F1 and micro-F1 of classes (n,): `2 TP / (2 TP + FP + FN)`, per class and in all.

    Classes that occur neither among the labels nor among the predictions do not count.

    Example:
        >>> f1(torch.tensor([0, 1, 1, 1]), torch.tensor([0, 1, 1, 0]), 2)
        (0.7333333333333334, 0.75)
    """
    hits = predicted[predicted == labels].bincount(minlength=num_classes).double()
    total = (torch.cat([predicted, labels])).bincount(minlength=num_classes).double()
    present = total > 0  # 2 TP + FP + FN is how often a class is predicted or right
    macro = (2 * hits[present] / total[present]).mean()
    return float(macro), float(2 * hits.sum() / total.sum())


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
