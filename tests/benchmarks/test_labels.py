"""More labels: some test nodes are trained on, the others still tested."""

import pytest

from benchmarks.reproduce.labels import with_more_labels
from tensus_tn.data import planted


def test_test_nodes_become_training_nodes_by_the_seed():
    data = planted(num_nodes=50)
    before, count = data.target.nodes, len(data.target.nodes["train"]) + 4
    one, again, other = (with_more_labels(data, count, s).target.nodes for s in (0, 0, 1))
    assert len(one["train"]) == count
    assert len(one["test"]) == len(before["test"]) - 4
    assert one["val"].tolist() == before["val"].tolist()
    known = set(one["train"].tolist()) | set(one["test"].tolist())
    assert known == set(before["train"].tolist()) | set(before["test"].tolist())
    assert not set(one["train"].tolist()) & set(one["test"].tolist())
    assert one["train"].tolist() == again["train"].tolist() != other["train"].tolist()


@pytest.mark.parametrize("count", [3, 1000])
def test_too_few_or_too_many_are_refused(count):
    with pytest.raises(ValueError, match="can't be trained"):
        with_more_labels(planted(num_nodes=50), count, 0)
