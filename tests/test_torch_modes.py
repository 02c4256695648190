"""What torch is doing around us is seen through every nesting of transforms."""

import torch
from torch.autograd import forward_ad

from tensus_tn._torch_modes import (
    inspectable,
    is_mapped,
    lasting,
    may_be_differentiated,
    unwrapped,
)


def test_a_mapped_tensor_is_seen_inside_other_transforms():
    seen = []

    def look(x):
        seen.append((is_mapped(x), inspectable(x)))
        return x.sum()

    x = torch.ones(2, 3)
    look(x)
    torch.func.grad(look)(x)
    torch.func.vmap(look)(x)
    torch.func.vmap(torch.func.grad(look))(x)
    assert seen == [(False, True), (False, True), (True, False), (True, False)]


def test_values_are_not_looked_at_while_compiling():
    @torch.compile(fullgraph=True, backend="eager")
    def look(x):
        return x + 1 if inspectable(x) else x + 2

    assert look(torch.zeros(())) == 2


def test_every_kind_of_derivative_is_seen():
    seen = []

    def look(x):
        seen.append(may_be_differentiated(x))
        return x.sum()

    x = torch.ones(3)
    look(x)
    assert seen.pop() is False
    look(torch.ones(3, requires_grad=True))
    torch.func.grad(look)(x)
    torch.func.jvp(look, (x,), (x,))
    with forward_ad.dual_level():
        look(forward_ad.make_dual(x, x))
    assert seen == [True] * 4


def test_what_is_made_to_last_is_of_no_transform_and_no_inference_mode():
    made = []

    def make(x):
        with lasting():
            made.append((unwrapped(x) + 1, torch.zeros(3)))
        return x.sum()

    torch.func.jvp(make, (torch.ones(3),), (torch.ones(3),))
    torch.func.grad(lambda x: torch.func.grad(make)(x).sum())(torch.ones(3))
    with torch.inference_mode():
        make(torch.ones(3))
        assert torch.zeros(1).is_inference()
    for x in (x for pair in made for x in pair):
        assert not x.is_inference()
        assert len(x.numpy()) == 3
