"""The benchmark of completion: its problems are what they say, and its table has their rows."""

import pytest
import torch

from benchmarks.tensor import completion
from benchmarks.tensor.completion import Problem, Row
from tensus_tn import Dag

SMALL = Problem("CP of order 3", Dag.path(3), 8, 1, cp=True)


def test_a_tenth_of_the_entries_is_seen():
    dense, index = SMALL.draw(0)
    assert dense.shape == (8, 8, 8)
    assert index.shape == (51, 3)
    assert len(index.unique(dim=0)) == 51
    assert torch.linalg.matrix_rank(dense.reshape(8, 64)) == 1
    again, _ = SMALL.draw(0)
    assert torch.equal(dense, again)


def test_peers_are_asked_for_what_they_can_do():
    assert list(completion.peers(SMALL)) == ["tensus_tn", "tensorly", "tntorch"]
    assert list(completion.peers(SMALL._replace(cp=False))) == ["tensus_tn", "tntorch"]
    assert list(completion.peers(Problem("", Dag.complete(2), 3, 2))) == ["tensus_tn"]


def test_what_is_found_is_counted():
    fits = {"right": completion.ours, "wrong": lambda problem, dense, index, seed: 2 * dense}
    right, wrong = completion.run(SMALL, fits, range(2))
    assert right[:4] == ("CP of order 3, 8 choices, rank 1", "right", 2, 2)
    assert wrong[:4] == ("CP of order 3, 8 choices, rank 1", "wrong", 0, 2)


@pytest.mark.parametrize("fit", [completion.tensorly, completion.tntorch])
def test_peers_return_tensors(fit):
    pytest.importorskip(fit.__name__)
    dense, index = SMALL._replace(choices=4).draw(1)
    assert fit(SMALL, dense, index, 0).shape == dense.shape


def test_the_table():
    rows = [Row("a", "tensus_tn", 9, 10, 0.25), Row("a", "tntorch", 1, 10, 3.0)]
    text = completion.section(rows, "today")
    assert "| a | 9 of 10, 0.2 s | - | 1 of 10, 3.0 s |" in text
    assert text.startswith(completion.TITLE)
