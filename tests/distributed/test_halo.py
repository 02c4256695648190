import pytest
import torch

from tensus_tn.distributed.halo import Halo
from tensus_tn.distributed.processes import Processes
from tests.distributed import tasks


def test_rows_arrive_in_the_order_of_the_halo(crew):
    received = crew.run(2, tasks.halo_of, [[1, 5], [0]])
    assert received == [(2 * 2 * 4, [0, 1], [0, 2]), (1 * 2 * 4, [2, 0], [1, 0])]


def test_nothing_to_ask_for(crew):
    assert [bytes_ for bytes_, *_ in crew.run(2, tasks.halo_of, [[], []])] == [0, 0]


def test_alone():
    processes = Processes.of(None)
    none, own = torch.zeros(0, dtype=torch.int64), torch.arange(3)
    halo = Halo.of(none, torch.zeros(3, dtype=torch.int64), own, processes)
    state = torch.ones(3, 1, 2)
    assert len(halo.start(state).wait()) == 0
    assert len(halo) == halo.received.bytes == 0


def test_a_node_that_is_not_owned_is_refused():
    owner = torch.zeros(4, dtype=torch.int64)
    with pytest.raises(ValueError, match="different partitions"):
        Halo.of(torch.tensor([3]), owner, torch.arange(3), Processes.of(None))


def test_wrong_numbers_of_rows_are_refused(crew):
    for good, error in crew.outcomes(2, wrong_numbers):
        assert not good
        assert "a halo of 1 rows, 2 of which come from others" in error


def wrong_numbers():
    processes = Processes.of(None)
    owner = torch.arange(8) % 2
    own = (owner == processes.rank).nonzero().flatten()
    halo = Halo.of(torch.tensor([1 - processes.rank]), owner, own, processes)
    halo.receive[1 - processes.rank] = 2
    halo.start(torch.zeros(4, 1, 2))
