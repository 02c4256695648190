"""The table of times: every kind of network has its line."""

import re

from tensus_tn.tasks import Config
from tensus_tn.tasks.bench import bench


def test_the_table_has_a_line_for_every_network():
    lines = bench(Config(topology="path", steps=2, hidden=4), seconds=0.01).splitlines()
    names = [re.split(r"  +", line)[0] for line in lines[2:]]
    assert names == ["soft, rank 1", "soft, rank 2", "soft, rank 4", "sampled, rank 1", "derived"]
    for line in lines[2:]:
        assert re.fullmatch(r".{18} *\d+\.\d( \(\d+\.\d-\d+\.\d\))? *\d+\.\d( \(.*\))?", line), line
