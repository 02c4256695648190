"""What is to be learned, and data that do not fit it."""

from dataclasses import replace

import pytest
import torch

from tensus_tn.data import planted
from tensus_tn.tasks import (
    make_task,
)
from tests.tasks.problems import small_links


def test_loss_of_links_is_that_of_the_protocol():
    task = make_task(small_links())
    scores = torch.randn(180)
    positive, negative = scores[:90].sigmoid(), (-scores[90:]).sigmoid()
    expected = -(positive.log() + negative.log()).mean()
    assert torch.allclose(task.loss(scores, "train"), expected)
    pairs = task.pairs["train"]
    assert ((pairs[0] % 2) == (pairs[1] % 2)).tolist() == [True] * 90 + [False] * 90


def test_tasks_refuse_data_of_the_other_kind(task):
    from tensus_tn.tasks import LinkPrediction, NodeClassification

    with pytest.raises(TypeError, match="needs pairs"):
        LinkPrediction(planted(num_nodes=8))
    with pytest.raises(TypeError, match="needs labels"):
        NodeClassification(small_links())


def test_a_target_that_no_relation_ends_in_is_refused():
    data = planted(num_nodes=8)
    relations = {name: data.relations[name] for name in "AC"}
    with pytest.raises(ValueError, match="no relation of 'planted' ends in 't'"):
        make_task(replace(data, relations=relations))
