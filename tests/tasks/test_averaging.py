"""The average of several networks, against the networks themselves."""

import json

import pytest
import torch

from tensus_tn.tasks import restore, run, run_average
from tests.tasks.problems import SMALL


def test_it_averages_the_scores_of_runs_with_these_seeds(task, tmp_path):
    config = SMALL.with_values({"seed": 3, "out": str(tmp_path)})
    result = run_average(config, 2, task)
    members = []
    for seed in (3, 4):
        alone = run(SMALL.with_values({"seed": seed}), task)
        kept = json.loads((tmp_path / f"seed{seed}" / "result.json").read_text())
        assert kept["test"] == alone.test
        members.append(restore(tmp_path / f"seed{seed}")[1].eval())
    mean = sum(net(task.x, task.graph)[task.nodes["test"]] for net in members) / 2
    assert result.test["loss"] == pytest.approx(task.loss(mean, "test").item())
    lines = (tmp_path / "predictions.txt").read_text().splitlines()
    predicted = torch.tensor([int(line.rsplit("\t", 1)[1]) for line in lines])
    assert torch.equal(predicted, mean.argmax(1))
    assert json.loads((tmp_path / "result.json").read_text())["test"] == result.test


def test_no_networks_are_refused(task):
    with pytest.raises(ValueError, match="k must be a positive integer, got 0"):
        run_average(SMALL, 0, task)
