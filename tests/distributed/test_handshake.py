import pytest

from tensus_tn._version import __version__
from tensus_tn.distributed import handshake as handshakes
from tensus_tn.distributed.processes import Processes
from tests.distributed import tasks


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (tasks.disagree, "different rank: process 0 has 2, process 1 has 3"),
        (tasks.other_partition, "different partition"),
        (tasks.other_call, "different features: process 0 has (5, torch.float32), process 1"),
        (
            tasks.other_rows,
            "different types and shapes of rows: process 0 has (torch.float32, (3,)),",
        ),
        (
            tasks.other_groups,
            "different groups of columns: process 0 has [2, 2], process 1 has [2, 2, 0]",
        ),
        (tasks.other_parameters, "different parameters: process 0 has [((2,), torch.float32)],"),
    ],
)
def test_processes_that_differ_are_refused_on_all(crew, task, message):
    for good, error in crew.outcomes(2, task):
        assert not good
        assert error.startswith("DisagreementError")
        assert message in error


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("rows", "process 1 has ValueError('rows 40 is out of range"),
        ("choices", "process 1 has ValueError("),
        ("type", 'process 1 has TypeError("features are torch.float64'),
        ("features", "process 1 has ValueError('features contain NaN or infinity')"),
        ("node", "process 1 has ValueError('node node 40 is out of range"),
        ("draws", "process 1 has ValueError('1 layers, but draws for 0')"),
        ("heads", "process 1 has ValueError('1 heads, but 2 draws')"),
        ("links", "process 1 has ValueError('a draw for the links []"),
        ("pairs", "process 1 has ValueError('target node 40 is out of range"),
        ("edges", "process 1 has ValueError("),
        ("values", "process 1 has ValueError("),
        ("file", "process 1 has FileNotFoundError("),
        ("graph", "process 1 has AttributeError("),
        ("folder", "process 1 has NotADirectoryError("),
        ("column", "process 1 has ValueError('its rows lead to others that are not there"),
        ("halo", "process 1 has ValueError('halo 99 is out of range"),
        (
            "scatter",
            "process 1 has ValueError('features must have 40 rows on process 1, got (39, 4)",
        ),
        (
            "nothing",
            "process 1 has TypeError('features must be a tensor on process 1, got NoneType",
        ),
        ("source", "process 1 has ValueError('source must be a process 0 .. 1, got 5"),
        ("gather", "process 1 has ValueError('rows must have "),
        (
            "sparse",
            "process 1 has TypeError('rows must be dense and on the CPU, got torch.sparse_coo",
        ),
        ("target", "process 1 has ValueError('target must be a process 0 .. 1, got -1"),
        (
            "losses",
            "process 1 has TypeError('losses must be a tensor of real numbers, got torch.int64",
        ),
        ("gradients", "process 1 has TypeError('gradients must be dense, got torch.sparse_coo"),
    ],
)
def test_a_mistake_of_one_process_is_raised_on_all(crew, tmp_path, what, message):
    for error in crew.run(2, tasks.mistake, what, tmp_path):
        assert error.startswith("a mistake in the arguments: " + message)


def test_versions_are_compared(crew):
    for good, error in crew.outcomes(2, other_version):
        assert not good
        assert f"different tensus_tn: process 0 has {__version__}, process 1 has 0.0" in error


def other_version():
    processes = Processes.of(None)
    if processes.rank:
        handshakes.__version__ = "0.0"
    try:
        handshakes.handshake(processes, {})
    finally:
        handshakes.__version__ = __version__


def test_alone():
    handshakes.handshake(Processes.of(None), {"rank": 2})
    handshakes.quick_check(Processes.of(None), {"rank": 2})
