"""Several methods in one table."""

import json

import pytest

from tensus_tn.tasks import (
    METHODS,
    Result,
    build_model,
    compare,
    equal_rank,
    restore,
)
from tests.tasks.problems import SMALL


@pytest.mark.slow
def test_compare_runs_every_method_and_seed(tmp_path, task):
    config = SMALL.with_values({"epochs": 2, "out": str(tmp_path)})
    seen = []
    results = compare(config, task, [0, 1], METHODS, lambda name, result: seen.append(name))
    assert seen == ["tensus", "cp", "diffmg", "gtn"] * 2
    assert [r.config["seed"] for r in results["gtn"]] == [0, 1]
    assert results["cp"][0].config["ties"] == "global"
    assert results["gtn"][0].config["rank"] == 1
    assert results["tensus"][0].config["rank"] == 2
    lines = (tmp_path / "compare.csv").read_text().splitlines()
    assert len(lines) == 9
    rows = json.loads((tmp_path / "compare.json").read_text())
    assert rows[0]["test_macro_f1"] == results["tensus"][0].test["macro_f1"]
    assert isinstance(results["cp"][0], Result)


def test_diffmg_searches_over_the_network_that_it_trains(tmp_path, task):
    """By DiffMG's settings of the search, whatever those of the training are."""
    changes = {"steps": 3, "hidden": 4, "weight_decay": 0.1, "input_activation": "tanh"}
    config = SMALL.with_values({**changes, "epochs": 1, "out": str(tmp_path)})
    METHODS["diffmg"](config, task)
    searched, _ = restore(tmp_path / "search")
    assert (searched.steps, searched.hidden) == (3, 4)
    assert (searched.weight_decay, searched.input_activation) == (0.001, "none")


def test_cp_has_about_as_many_parameters(task):
    config = SMALL.with_values({"topology": "complete", "steps": 4, "rank": 3})
    rank = equal_rank(config, task)

    def size(settings):
        return sum(p.numel() for p in build_model(settings, task.spec).arch_parameters())

    wanted = size(config)
    cp = config.with_values({"ties": "global"})
    sizes = {d: size(cp.with_values({"rank": d})) for d in range(1, 12)}
    assert abs(sizes[rank] - wanted) == min(abs(value - wanted) for value in sizes.values())
