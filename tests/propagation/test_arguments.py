import re

import pytest
import torch

from tensus_tn.propagation.arguments import Arguments, Wanted
from tensus_tn.propagation.operators import SCHEMAS


def names(schema):
    arguments, _, _ = schema.removeprefix("(").partition(") ->")
    return tuple(re.findall(r"(\w+)(?:,|$)", arguments))


def test_arguments_stand_in_the_order_of_the_schema():
    assert Arguments._fields == names(SCHEMAS["propagate"])


def test_backward_takes_the_same_arguments_between_gradients_and_needs():
    first, last = ("grads", "grad_nodes", "states"), tuple(f"need_{n}" for n in Wanted._fields)
    assert names(SCHEMAS["propagate_backward"]) == (*first, *Arguments._fields, *last)


@pytest.mark.parametrize("edges", [0, 3])
def test_edges_are_counted_by_their_columns(edges):
    structure = [torch.zeros(4), torch.zeros(2), torch.zeros(3), torch.zeros(edges)]
    given = Arguments(*[None] * len(Arguments._fields))._replace(forward=structure)
    assert given.num_edges == edges
