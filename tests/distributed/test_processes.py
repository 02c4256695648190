import time
from datetime import timedelta

import pytest

from tensus_tn.distributed import Processes, init
from tests.distributed import crew as crews
from tests.distributed import tasks


def test_what_processes_say_to_each_other(crew):
    for size in (1, 2, 4):
        words = crew.run(size, tasks.talk)
        assert words == [f"Processes(rank={rank}, size={size})" for rank in range(size)]


def test_alone():
    assert init() == Processes(None, 0, 1)
    with pytest.raises(ValueError, match="timeout must be positive"):
        init(timeout=0)


@pytest.fixture
def victims():
    members = crews.Crew()
    yield members
    for process, _ in members.members:
        process.kill()


def test_a_process_that_dies_ends_the_others_at_once(victims):
    victims.run(2, tasks.talk)
    begin = time.monotonic()
    (good, error), _ = lost(victims, "die")
    assert not good
    assert error.startswith("PeerError: process 0 of 2 lost another one")
    assert time.monotonic() - begin < crews.TIMEOUT.total_seconds() / 2  # not at the timeout


def test_a_process_that_hangs_ends_the_others_at_the_timeout(victims, monkeypatch):
    monkeypatch.setattr(crews, "TIMEOUT", timedelta(seconds=2))
    (good, error), _ = lost(victims, "hang")
    assert not good
    assert "timeout of 2 s" in error


def lost(members, how):
    """What the first process says, when the last one is gone."""
    members._hire(2)
    members.tasks += 1
    store = f"{members.folder.name}/store-{members.tasks}"
    for _, pipe in members.members:
        pipe.send((2, store, crews.TIMEOUT, tasks.leave_early, (how,)))
    return members.members[0][1].recv(), None
