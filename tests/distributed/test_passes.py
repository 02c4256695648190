import pytest

from tensus_tn import Dag
from tests.distributed import tasks
from tests.distributed.equal import NATIVE


@pytest.mark.parametrize("size", [2, 4])
def test_a_rank_of_eight_mixes_first_both_ways(crew, size):
    y, dh, error = crew.run(size, tasks.compare, "rows", "path", "metis", "graph", False)[0]
    assert error < 2e-6
    assert (y and dh) or not NATIVE
    assert Dag.path(3) == tasks.DAGS["path"][0]


@pytest.mark.parametrize("dag", ["complete", "path"])
def test_no_halo_is_kept_for_the_backward_pass(crew, dag):
    for kept, own, halo in crew.run(2, tasks.kept, dag):
        assert kept == own
        assert halo > 0
