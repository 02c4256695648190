"""What can be counted of a pair in the graph, and a logistic regression on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from tensus_tn.data import Dataset
from tensus_tn.data.dataset import SPLITS
from tensus_tn.data.structure import log_degrees, spectral
from tensus_tn.tasks.metrics import auc
from tensus_tn.tasks.task import LinkPrediction

Floats = NDArray[np.float64]
Matrix = Any  # scipy.sparse.csr_array
#: Ranks of the spectral likenesses, and inverse penalties that validation chooses from.
RANKS = (4, 8, 16, 32, 64, 128)
PENALTIES = (1e-3, 1e-2, 1.0)
#: Of the training pairs, so that none is counted in its own features.
FOLDS = 10


def regression(task: LinkPrediction) -> dict[str, float]:
    """Validation and test AUC of the regression, with the penalty that validation prefers."""
    features = pair_features(task)
    scaler = StandardScaler().fit(features["train"])
    x = {split: scaler.transform(several) for split, several in features.items()}
    labels = np.repeat([1, 0], len(x["train"]) // 2)
    found = []
    for inverse in PENALTIES:
        model = LogisticRegression(C=inverse, max_iter=1000).fit(x["train"], labels)
        scores = {split: model.decision_function(x[split]) for split in ("val", "test")}
        found.append({s: auc(*torch.from_numpy(y).chunk(2)) for s, y in scores.items()})
    return max(found, key=lambda scores: scores["val"])


def pair_features(task: LinkPrediction) -> dict[str, Floats]:
    """For every split the features (2n, columns) of its pairs, the positive ones first.

    Log degrees of both ends; their positive and negative training pairs; for every chain of two or
    three relations from the first end to the second, how many walks there are (`log(1 + count)`) and
    the chance that a random walk from either end arrives at the other (its root); and dot products of
    spectral vectors, of several ranks.
    """
    data, ends = task.data, (task.source, task.target)
    degrees, vectors = log_degrees(data), spectral(data, RANKS[-1])
    chains, rated = list(_chains(data, *ends)), _training_pairs(task)
    found = {}
    for split in SPLITS:
        first, second = task.pairs[split].cpu().numpy()
        columns = [*degrees[ends[0]].numpy()[first].T, *degrees[ends[1]].numpy()[second].T]
        for chain in chains:
            columns.append(np.log1p(_entries(chain, first, second)))
            columns.append(np.sqrt(_entries([_by_row(a) for a in chain], first, second)))
            columns.append(np.sqrt(_entries([_by_row(a.T).T for a in chain], first, second)))
        products = vectors[ends[0]].numpy()[first] * vectors[ends[1]].numpy()[second]
        columns += [products[:, -rank:].sum(1) for rank in RANKS]  # the largest values come last
        found[split] = np.column_stack([*columns, rated[split]]).astype(np.float64)
    return found


def _training_pairs(task: LinkPrediction) -> dict[str, Floats]:
    """Of both ends: logarithms of positive and negative training pairs, and of their ratio.

    A training pair sees those of the other folds alone, as if it were new.
    """
    train = task.pairs["train"].cpu().numpy()
    folds = np.random.default_rng(0).integers(FOLDS, size=train.shape[1])
    found = {s: _ratings(task, folds >= 0, 1.0, task.pairs[s].cpu().numpy()) for s in SPLITS}
    for fold in range(FOLDS):
        others, mine = folds != fold, folds == fold
        found["train"][mine] = _ratings(task, others, FOLDS / (FOLDS - 1), train[:, mine])
    return found


def _ratings(task: LinkPrediction, used: Any, scale: float, pairs: Any) -> Floats:
    """From the training pairs that are used, and of the ratio also with the edges of the graph."""
    train, columns = task.pairs["train"].cpu().numpy(), []
    positive = np.arange(train.shape[1]) < train.shape[1] // 2
    for end, kind in enumerate((task.source, task.target)):
        liked, disliked, known = (
            np.bincount(ids, minlength=task.data.node_counts[kind])[pairs[end]]
            for ids in (
                train[end][used & positive],
                train[end][used & ~positive],
                task.known[end].cpu().numpy(),
            )
        )
        liked, disliked = 1 + scale * liked, 1 + scale * disliked
        columns += [np.log(liked), np.log(disliked), np.log((liked + known) / disliked)]
    return np.stack(columns, 1)


def _chains(data: Dataset, source: str, target: str) -> Iterator[list[Matrix]]:
    """The 0/1 matrices of two or three relations that lead from the source to the target type."""
    steps = [(r.source, r.destination, _matrix(data, name)) for name, r in data.relations.items()]
    for start, here, a in steps:
        for there, middle, b in steps:
            if (start, here) != (source, there):
                continue
            if middle == target:
                yield [a, b]
            yield from ([a, b, c] for s, end, c in steps if (s, end) == (middle, target))


def _matrix(data: Dataset, name: str) -> Matrix:
    """A relation (n, m): its senders are rows."""
    relation = data.relations[name]
    rows, columns = data.slices[relation.source], data.slices[relation.destination]
    ids = relation.edges.cpu().numpy() - np.array([[rows.start], [columns.start]])
    shape = rows.stop - rows.start, columns.stop - columns.start
    return sp.csr_array((np.ones(ids.shape[1]), tuple(ids)), shape=shape)


def _by_row(a: Matrix) -> Matrix:
    """Every row divided by its sum, where it has one."""
    return sp.diags_array(1 / np.maximum(a.sum(1), 1)) @ a


def _entries(chain: Sequence[Matrix], rows: Any, columns: Any) -> Floats:
    """The product of the matrices at (rows, columns) alone."""
    *left, last = chain
    if len(chain) == 3 and _cost(chain[1], chain[2]) < _cost(chain[0], chain[1]):
        left, last = [chain[0]], chain[1] @ chain[2]
    product = left[0] if len(left) == 1 else left[0] @ left[1]
    both = product.tocsr()[rows].multiply(last.T.tocsr()[columns])
    return np.asarray(both.sum(1)).ravel()


def _cost(a: Matrix, b: Matrix) -> float:
    """Of the product `a @ b`, in multiplications."""
    return float((a != 0).sum(0) @ (b != 0).sum(1))
