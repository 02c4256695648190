"""Fixtures of the tests of training."""

import pytest

from tensus_tn.data import planted
from tensus_tn.tasks import (
    make_task,
)


@pytest.fixture(scope="module")
def task():
    return make_task(planted(num_nodes=60), "row")
