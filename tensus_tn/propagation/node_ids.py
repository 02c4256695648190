"""Node types, relations and node ids: how they are named, numbered and checked."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from itertools import accumulate

import torch
from torch import Tensor

#: A relation's name, or PyG's and DGL's (source type, name, destination type).
RelationKey = str | tuple[str, str, str]


_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def relation_name(key: RelationKey) -> str:
    """The name of a relation: a string as it is, an edge type joined as PyG does it."""
    if isinstance(key, str):
        return key
    if isinstance(key, tuple) and len(key) == 3 and all(isinstance(part, str) for part in key):
        return "__".join(key)
    raise TypeError(
        "a relation is named by a string or by three strings (source type, name, destination "
        f"type), got {key!r}"
    )


def node_counts(num_nodes: int | Mapping[str, int]) -> dict[str, int]:
    """Node types and their sizes, in order; one type "node" for a plain count."""
    counts = dict(num_nodes) if isinstance(num_nodes, Mapping) else {"node": num_nodes}
    for kind, count in counts.items():
        try:
            counts[kind] = operator.index(count)
        except TypeError:
            raise TypeError(f"the number of {kind!r} nodes must be an int, got {count!r}") from None
        if count < 0:
            raise ValueError(f"the number of {kind!r} nodes must not be negative, got {count}")
    return counts


def type_slices(counts: Mapping[str, int]) -> dict[str, slice]:
    """Where the nodes of each type stand among the global ids."""
    ends = list(accumulate(counts.values()))
    return {k: slice(end - n, end) for (k, n), end in zip(counts.items(), ends, strict=True)}


def require_ids(what: str, index: Tensor, count: int) -> Tensor:
    """Check that ids are integers in 0 .. count - 1, and return them as int64."""
    if index.dtype not in _INTEGERS:
        raise TypeError(f"{what}: expected integers, got {index.dtype}")
    if torch.compiler.is_compiling():  # then the operator that takes them checks
        return index.long()
    if not index.numel():
        return index.long()
    least, most = torch.aminmax(index)
    if int(least) < 0 or int(most) >= count:
        bad = int(index[(index < 0) | (index >= count)][0])
        raise ValueError(f"{what} {bad} is out of range, there are {count}")
    return index.long()
