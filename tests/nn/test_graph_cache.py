"""What is kept, and for how long, by values that stand for graphs; with real ones in test_pyg.py."""

import gc

import torch

from tensus_tn.nn import graph_cache


def test_kept_while_its_tensors_are_there_and_unchanged():
    calls = []

    def convert():
        calls.append(len(calls))
        return object()

    x, y = torch.zeros(2), torch.zeros(2)
    first = graph_cache.cached([x, y], "row", convert)
    assert graph_cache.cached([x, y], "row", convert) is first
    assert graph_cache.cached([y, x], "row", convert) is not first
    assert graph_cache.cached([x, y], "sym", convert) is not first
    y += 1
    assert graph_cache.cached([x, y], "row", convert) is not first
    assert len(calls) == 4
    del x
    gc.collect()
    assert not [key for key in graph_cache._graphs if key[0] in ("row", "sym")]


def test_what_learns_or_is_no_tensor_is_not_kept():
    made = iter(range(10))
    for tensors in ([torch.zeros(2, requires_grad=True)], ["no tensor"]):
        assert graph_cache.cached(tensors, None, lambda: next(made)) != graph_cache.cached(
            tensors, None, lambda: next(made)
        )
