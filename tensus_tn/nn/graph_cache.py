"""A graph is converted once: the same tensors in the next call cost nothing."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

_Converted = TypeVar("_Converted")

_size = 16
_graphs: OrderedDict[Hashable, tuple[list[weakref.ref[Tensor]], Any]] = OrderedDict()


def set_graph_cache_size(size: int) -> None:
    """Bound the cache of converted graphs, and empty it; 0 turns it off.

    A graph of PyG is converted when a layer first sees it, and found again while its tensors are the
    same objects, unchanged (torch counts changes in place). It is forgotten with them. So are sparse
    features, which are multiplied as graphs.

    Example:
        >>> set_graph_cache_size(0)
        >>> set_graph_cache_size(16)  # as at the start
    """
    global _size
    if not isinstance(size, int) or size < 0:
        raise ValueError(f"size must be a non-negative integer, got {size!r}")
    _size = size
    _graphs.clear()


def cached(
    tensors: Sequence[Any], options: Hashable, convert: Callable[[], _Converted]
) -> _Converted:
    """What `convert` makes of `tensors` with `options`, or made of them before."""
    if _size == 0 or not all(map(_is_countable, tensors)):
        return convert()
    key = (options, tuple((id(x), x._version) for x in tensors))
    if key in _graphs:
        _graphs.move_to_end(key)
        known: _Converted = _graphs[key][1]
        return known
    graph = convert()
    # An id may be used again when its tensor is gone: so the graph goes with the first of them.
    forget = [weakref.ref(x, lambda _, key=key: _graphs.pop(key, None)) for x in tensors]  # type: ignore[misc]
    _graphs[key] = (forget, graph)
    while len(_graphs) > _size:
        _graphs.popitem(last=False)
    return graph


def _is_countable(x: Any) -> bool:
    """Whether changes of a tensor are counted, and a graph made of it may be kept."""
    if torch.compiler.is_compiling() or not isinstance(x, Tensor):
        return False
    return not (x.is_inference() or x.requires_grad)
