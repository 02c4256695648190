import pytest

from tests.distributed.crew import Crew


@pytest.fixture(scope="session")
def crew():
    members = Crew()
    yield members
    members.close()
