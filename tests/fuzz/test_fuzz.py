"""A minute of random cases, the same in every run, and the loop's own judgement."""

import os
import signal

import pytest
import torch

from tests.fuzz.loop import Subject, fuzz, run_alone
from tests.fuzz.subjects import SUBJECTS

SECONDS = 10.0  # for each subject


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_random_cases_hold(name):
    fuzz(name, SUBJECTS[name], seed=0, seconds=SECONDS)  # others: python -m tests.fuzz


def fails(rng):
    raise ValueError("wrong")


def crashes(rng):
    os.kill(os.getpid(), signal.SIGKILL)


def fills_the_memory(rng):
    torch.ones(2**28).sum()


@pytest.mark.parametrize(
    ("check", "finding"),
    [(fails, "ValueError: wrong"), (crashes, "SIGKILL"), (fills_the_memory, "MiB of memory")],
)
def test_a_finding_is_reported_with_the_command_that_shows_it_again(check, finding):
    with pytest.raises(AssertionError, match=rf"(?s)--only x --seed 7 --minutes 0.*{finding}"):
        fuzz("x", Subject(check), seed=7, seconds=60.0)


def test_a_case_depends_on_its_seed_alone():
    def draws(rng):
        raise ValueError(f"{rng.random()} {torch.rand(1).item()}")

    first, again, other = (run_alone(draws, seed) for seed in (1, 1, 2))
    assert first == again != other
