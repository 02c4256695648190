"""metapath2vec: walks bring together what belongs together, and the penalty is chosen by validation."""

import pytest
import torch

pytest.importorskip("torch_geometric")
pytest.importorskip("sklearn")

from benchmarks.reproduce.metapath2vec import classify, walk_vectors
from tensus_tn.data import Dataset, NodeLabels, Relation
from tensus_tn.tasks import make_task


def two_worlds():
    """Twenty authors, each with a paper in one of two venues, which is their class."""
    authors, papers = torch.arange(20), torch.arange(20) + 20
    venue = 40 + torch.arange(20) % 2
    wrote, appeared = torch.stack([authors, papers]), torch.stack([papers, venue])
    relations = {
        "PA": Relation("author", "paper", wrote), "AP": Relation("paper", "author", wrote.flip(0)),
        "CP": Relation("paper", "venue", appeared), "PC": Relation("venue", "paper", appeared.flip(0)),
    }  # fmt: skip
    labels = torch.full((42,), -1)
    labels[:20] = torch.arange(20) % 2
    nodes = dict(zip(("train", "val", "test"), torch.arange(20).split([8, 6, 6]), strict=True))
    counts = {"author": 20, "paper": 20, "venue": 2}
    return Dataset("worlds", counts, relations, NodeLabels("author", labels, nodes, 2))


def test_walks_tell_the_two_worlds_apart():
    data = two_worlds()
    vectors = walk_vectors(data, ["PA", "CP", "PC", "AP"], epochs=300)
    assert vectors.shape == (20, 64)
    assert classify(make_task(data), vectors)["test"] == 100.0


def test_vectors_that_say_nothing_are_not_classified():
    scores = classify(make_task(two_worlds()), torch.zeros(20, 64))
    assert scores["test"] < 50.0
    assert set(scores) == {"train", "val", "test"}
