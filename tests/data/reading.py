"""The real files where they are, and edges as the tests compare them."""

import os
from pathlib import Path

import numpy as np
import pytest

DATA = Path(os.environ.get("TENSUS_DATA", "data"))


def real(file):
    if not (DATA / file).exists():
        pytest.skip(f"{file} is not in {DATA}: set TENSUS_DATA")
    return DATA / file


def pairs_of(data, name):
    """Edges as rows (receiving, sending)."""
    return data.relations[name].edges.flip(0).T.tolist()


def ratings(num_users=12, num_items=10, num=60):
    random = np.random.RandomState(0)
    cells = random.permutation(num_users * num_items)[:num]
    table = np.stack([cells // num_items + 1, cells % num_items + 1, random.randint(1, 6, num)], 1)
    repeated = table[:3] + np.array([0, 0, 1])  # the first line of a pair counts
    return np.concatenate([table, repeated])
