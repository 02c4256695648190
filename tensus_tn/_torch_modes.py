"""What torch is doing around us: compiling, mapping by `vmap`, differentiating."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.autograd import forward_ad


def is_mapped(x: Tensor) -> bool:
    """Whether a tensor stands for a batch inside `vmap`: its values can't be looked at."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(x):  # one wrapper for each transform it is in
        if functorch.is_batchedtensor(x):
            return True
        x = functorch.get_unwrapped(x)
    return False


def unwrapped(x: Tensor) -> Tensor:
    """A tensor as it is outside the transforms of `torch.func`; it must not be mapped by `vmap`."""
    while torch._C._functorch.is_functorch_wrapped_tensor(x):
        x = torch._C._functorch.get_unwrapped(x)
    return x


@contextmanager
def lasting() -> Iterator[None]:
    """What is computed here may be kept: neither `torch.func` nor inference mode marks it as theirs."""
    with torch._C._DisableFuncTorch(), torch.inference_mode(False):
        yield


def inspectable(x: Tensor) -> bool:
    """Whether the values of a tensor may steer the program: not while it is compiled or mapped."""
    return not (torch.compiler.is_compiling() or is_mapped(x))


def may_be_differentiated(x: Tensor) -> bool:
    """Whether a derivative by `x` may be wanted: backwards, forwards or by `torch.func`."""
    if torch.compiler.is_compiling() or x.requires_grad:
        return True
    wrapped: bool = torch._C._functorch.is_functorch_wrapped_tensor(x)
    return wrapped or forward_ad._current_level >= 0
