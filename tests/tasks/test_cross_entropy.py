"""The cross-entropy method finds what it should, within its budget."""

import pytest

from tensus_tn import Dag, DagTensor
from tensus_tn.tasks import cross_entropy_search

NAMES = ["A", "B", "C", "identity"]


def mistakes(meta_graphs):
    """How many links are not B."""
    return sum(name != "B" for graph in meta_graphs for name in graph.relations.values())


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "ties"), [(1, "node"), (2, "node"), (3, "global")])
def test_search_closes_in_on_the_best(rank, ties):
    dag = Dag.complete(3)
    tensors = [DagTensor(dag, dict.fromkeys(dag.edges, NAMES), rank, ties=ties) for _ in range(2)]
    found, history = cross_entropy_search(tensors, mistakes, rounds=5, batch=16, seed=0)
    assert [len(batch) for batch in history] == [16] * 5  # the budget, and not one more
    assert len({tuple(str(m.relations) for m in f.meta_graphs) for f in found}) == 5 * 16
    assert [f.score for f in found] == sorted(f.score for f in found)
    assert found[0].score == mistakes(found[0].meta_graphs) <= 3
    assert sum(history[-1]) < 0.7 * sum(history[0])  # 12 links of 4 choices: 9 mistakes by chance
    again, _ = cross_entropy_search(tensors, mistakes, rounds=5, batch=16, seed=0)
    assert again == found


def test_every_candidate_is_tried_once_where_there_are_few():
    tensor = DagTensor(Dag.path(1), {(0, 1): NAMES}, rank=1)
    found, history = cross_entropy_search([tensor], mistakes, rounds=3, batch=10, seed=0)
    assert [len(batch) for batch in history] == [4, 0, 0]
    assert found[0].meta_graphs[0].relations == {(0, 1): "B"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rounds": 0}, "rounds must be a positive integer, got 0"),
        ({"batch": 1.5}, "batch must be a positive integer, got 1.5"),
        ({"smoothing": 2.0}, "smoothing must be in"),
        ({"tensors": []}, "at least one tensor"),
    ],
)
def test_bad_arguments(changes, message):
    tensor = DagTensor(Dag.path(1), {(0, 1): NAMES}, rank=1)
    arguments = {"tensors": [tensor], "rounds": 1, "batch": 4, "seed": 0, **changes}
    with pytest.raises(ValueError, match=message):
        cross_entropy_search(score=mistakes, **arguments)
