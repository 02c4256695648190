"""Training by several processes: the same losses, one folder, and no matter how many of them."""

import pytest

from tests.distributed import tasks
from tests.distributed.conftest import crew  # noqa: F401

QUIET = {"dropout": 0.0, "state_dropout": 0.0}


def close(left, right):
    return [pytest.approx(pair, abs=2e-6) for pair in right] == list(left)


@pytest.fixture(scope="module")
def alone(crew, tmp_path_factory):  # noqa: F811
    return crew.run(1, together, tmp_path_factory.mktemp("run") / "one", QUIET)[0]


def together(out, values):
    return tasks.train(out, **values)


@pytest.mark.parametrize("size", [2, 3])
def test_losses_are_those_of_one_process(crew, tmp_path, alone, size):  # noqa: F811
    for losses in crew.run(size, together, tmp_path / "out", QUIET):
        assert close(losses, alone)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"checkpoint.pt", "result.json", "history.csv"} <= names


@pytest.mark.parametrize(
    "kind",
    [{"batch_size": 28}, {"batch_size": 44, "pairs": True, "bias": True, "updates": "alternating"}],
)
def test_batches_are_those_of_one_process(crew, tmp_path, kind):  # noqa: F811
    """Of 30 nodes or 90 pairs, two are a batch of their own: two of four processes have nothing."""
    values = {**QUIET, **kind, "fan_out": "3"}
    (alone,) = crew.run(1, together, tmp_path / "one", values)
    for size in (2, 4):
        for losses in crew.run(size, together, tmp_path / str(size), values):
            assert close(losses, alone)


def test_draws_are_the_same_on_all_in_batches(crew, tmp_path):  # noqa: F811
    values = {"search": "sampled", "epsilon": 0.5, "batch_size": 12}
    first, second = crew.run(2, together, tmp_path / "out", values)
    assert first == second


def test_batches_are_shared_evenly(crew, tmp_path):  # noqa: F811
    for good, error in crew.outcomes(3, together, tmp_path / "out", {"batch_size": 8}):
        assert not good
        assert "batch_size must be a multiple of that, got 8" in error


@pytest.mark.parametrize("updates", ["joint", "alternating"])
def test_draws_are_the_same_on_all(crew, tmp_path, updates):  # noqa: F811
    values = {"search": "sampled", "epsilon": 0.5, "updates": updates}
    first, second = crew.run(2, together, tmp_path / "out", values)
    assert first == second


def test_a_run_goes_on_with_other_processes(crew, tmp_path, alone):  # noqa: F811
    out = tmp_path / "out"
    crew.run(2, together, out, {**QUIET, "epochs": 2})
    crew.run(3, together, out, {**QUIET, "epochs": 4, "resume": True})
    (losses,) = crew.run(1, together, out, {**QUIET, "resume": True})
    assert close(losses, alone)


def test_a_run_goes_on_to_the_same_bits(crew, tmp_path):  # noqa: F811
    """With dropout and draws: what is random depends on the epoch, not on what went before."""
    values = {"search": "sampled", "epsilon": 0.5}
    whole = crew.run(2, together, tmp_path / "whole", values)[0]
    crew.run(2, together, tmp_path / "out", {**values, "epochs": 4})
    assert crew.run(2, together, tmp_path / "out", {**values, "resume": True})[0] == whole


def test_a_folder_with_a_run_is_refused_on_all(crew, tmp_path):  # noqa: F811
    crew.run(1, together, tmp_path / "out", {"epochs": 1})
    for good, error in crew.outcomes(2, together, tmp_path / "out", {"epochs": 1}):
        assert not good
        assert "FileExistsError" in error


def test_other_settings_are_refused_on_all(crew, tmp_path):  # noqa: F811
    for good, error in crew.outcomes(2, tasks.train_otherwise, tmp_path / "out"):
        assert not good
        assert "different lr: process 0 has 0.1, process 1 has 0.2" in error


def test_every_node_is_trained_on_once(crew):  # noqa: F811
    parts = crew.run(3, tasks.shares)
    assert sorted(node for share, _ in parts for node in share) == sorted(parts[0][1])
