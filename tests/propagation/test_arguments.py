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


def test_the_vector_of_weights_is_cut_by_edge():
    given = Arguments(*[None] * len(Arguments._fields))._replace(
        ranks=[2, 1, 3], tails=[0, 1, 0], heads=[1, 2, 2]
    )
    assert given.shapes == [(2, 1), (1, 3), (2, 3)]
    w = torch.arange(44)
    weights = given.weights(w)
    assert [tuple(x.shape) for x in weights] == [(1, 4, 2, 1), (1, 4, 1, 3), (1, 4, 2, 3)]
    assert torch.equal(torch.cat([x.flatten() for x in weights]), w)


def test_the_vector_of_weights_is_cut_by_group_first():
    given = Arguments(*[None] * len(Arguments._fields))._replace(
        h=torch.arange(12).reshape(2, 1, 6),
        w=torch.arange(3 * 4 * 3),
        ranks=[1, 2, 1],
        tails=[0, 0],
        heads=[1, 2],
        group_sizes=[2, 0, 4],
    )
    first, second = given.weights(given.w)
    assert (first.shape, second.shape) == ((3, 4, 1, 2), (3, 4, 1, 1))
    assert [x.flatten().tolist() for x in second] == [[g, g + 1, g + 2, g + 3] for g in (8, 20, 32)]
    alone = given.by_group()
    assert [x.h[0, 0].tolist() for x in alone] == [[0, 1], [], [2, 3, 4, 5]]
    for g, group in enumerate(alone):
        assert torch.equal(group.weights(group.w)[0][0], first[g])


def test_without_groups_all_columns_are_one():
    given = Arguments(*[None] * len(Arguments._fields))
    assert given.num_groups == 1
    assert given.by_group() == [given]
