"""Fixtures of the tests of layers."""

import pytest
import torch

from tests.nn.meta_graphs import COUNTS, SIZES, random_graph, typed_graph


@pytest.fixture
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def graph():
    return random_graph()


@pytest.fixture(name="typed_graph")
def _typed_graph():
    return typed_graph()


@pytest.fixture
def x():
    return {kind: torch.randn(COUNTS[kind], SIZES[kind]) for kind in SIZES}
