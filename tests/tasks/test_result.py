"""What comes out of a run goes through JSON unchanged."""

import json

from tensus_tn.tasks import Result, run
from tests.tasks.problems import SMALL


def test_a_result_is_plain_values(task):
    result = run(SMALL.with_values({"epochs": 2}), task)
    assert Result(**json.loads(json.dumps(result.to_dict()))) == result
    assert len(result.history) == result.epochs == 2
