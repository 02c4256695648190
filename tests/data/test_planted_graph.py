import math

import pytest
import torch

from tensus_tn.data import PLANTED_PATHS, planted


def path_means(data):
    """The four paths' mean features of the nodes to be classified."""
    graph = {name: m.toarray() for name, m in data.graph("row").to_scipy().items()}
    n = data.node_counts["s"]
    x = data.features["s"].numpy()
    return {
        (first, second): graph[second][2 * n :, n : 2 * n] @ graph[first][n : 2 * n, :n] @ x
        for first in "AC"
        for second in "BD"
    }


def test_labels_follow_from_the_planted_paths_and_from_no_rank_one_mixture():
    data = planted(num_nodes=1500, num_features=1, seed=1)
    label = data.target.labels[data.slices["t"]].bool()
    means = {path: torch.from_numpy(m[:, 0]) for path, m in path_means(data).items()}

    def accuracy(score):
        right = ((score > 0) == label).double().mean()
        return float(right.maximum(1 - right))

    planted_score = sum(means[path] for path in PLANTED_PATHS)
    assert accuracy(planted_score) > 0.99  # repeated edges are merged, so not all of them
    angles = torch.linspace(0, math.pi, 13)
    for first in angles:
        for second in angles:
            weights = {"A": first.cos(), "C": first.sin(), "B": second.cos(), "D": second.sin()}
            score = sum(weights[a] * weights[b] * mean for (a, b), mean in means.items())
            assert accuracy(score) < 0.75 + 0.04  # the bound, and what 1500 samples allow


def test_it_is_reproducible_balanced_and_only_sources_have_features():
    one, two, other = planted(num_nodes=400), planted(num_nodes=400), planted(num_nodes=400, seed=1)
    for name, relation in one.relations.items():
        assert (relation.edges == two.relations[name].edges).all()
    assert (one.target.labels == two.target.labels).all()
    assert (one.target.labels != other.target.labels).any()
    assert abs(one.target.labels[one.slices["t"]].double().mean() - 0.5) < 0.1
    assert not one.features["m"].any()
    assert not one.features["t"].any()


def test_nodes_without_senders_are_refused():
    with pytest.raises(ValueError, match="degree"):
        planted(num_nodes=8, degree=0)
