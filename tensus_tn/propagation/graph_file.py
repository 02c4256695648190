"""The file format of a RelationGraph: an `.npz` of its arrays as they lie in memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensus_tn._files import map_arrays, open_arrays, write_arrays
from tensus_tn.propagation import segments
from tensus_tn.propagation.assembly import Parts, check_names, check_values, checked_dtype
from tensus_tn.propagation.node_ids import node_counts
from tensus_tn.propagation.segments import Segments

_FORMAT = "tensus_tn.RelationGraph/2"
_WHAT = "a graph that RelationGraph.save wrote"
_ARRAYS = [field.name for field in fields(Segments)]
_VALUES = ("seg_val", "edge_val", "seg_loop")

Arrays = Mapping[str, NDArray[Any]]


def write(path: str | os.PathLike[str], parts: Parts) -> None:
    """Write a graph to a file, whole or not at all."""
    arrays: dict[str, NDArray[Any]] = {
        "format": np.array(_FORMAT),
        "relation_names": np.array(parts.relation_names, dtype=np.str_),
        "type_names": np.array([name for name, _ in parts.node_counts], dtype=np.str_),
        "type_counts": np.array([count for _, count in parts.node_counts], dtype=np.int64),
        "loop": parts.loop.cpu().numpy(),
    }
    for way, structure in (("forward", parts.forward), ("backward", parts.backward)):
        structure = structure.apply(lambda t: t.detach().cpu())
        for name in _ARRAYS:
            if (array := getattr(structure, name)) is not None:
                arrays[f"{way}.{name}"] = array.numpy()
    write_arrays(path, arrays)


@torch.inference_mode(False)  # as in `assemble`
def read(
    path: str | os.PathLike[str],
    max_bytes: int | None = None,
    *,
    mmap: bool = False,
    verify: bool = False,
) -> Parts:
    """Read, or map, and check: lengths and types always, every entry where asked for or read."""
    name = os.fspath(path)
    try:
        if mmap:
            parts = _parts(map_arrays(path, _WHAT, verify=verify))
        else:
            with open_arrays(path, _WHAT, max_bytes) as file:
                parts = _parts(file)
        if verify or not mmap:
            _verify(parts)
    except (KeyError, TypeError, ValueError) as error:
        if str(error).startswith(name):
            raise
        raise ValueError(f"{name}: {error}") from error
    return parts


def _parts(file: Arrays) -> Parts:
    """The fields of a graph, whose lengths and types agree."""
    if str(file["format"]) != _FORMAT:
        raise ValueError(f"it is of format {file['format']}, expected {_FORMAT}: save it again")
    names, types, sizes = (
        _names(file["relation_names"]),
        _names(file["type_names"]),
        file["type_counts"],
    )
    if sizes.shape != (len(types),) or len(set(types)) < len(types):
        raise ValueError(f"expected a count for each of {types}, got {sizes}")
    counts = node_counts(dict(zip(types, sizes.tolist(), strict=True)))
    loop = torch.from_numpy(file["loop"])
    checked_dtype(loop.dtype)
    forward, backward = (_segments(file, way, loop.dtype) for way in ("forward", "backward"))
    num_nodes = sum(counts.values())
    if loop.shape != (len(names),) or (forward.num_rows, backward.num_rows) != (num_nodes,) * 2:
        raise ValueError("the lengths of its arrays disagree")
    if (
        backward.edge_perm is None
        or backward.num_edges != forward.num_edges
        or backward.seg_loop is not None
    ):
        raise ValueError("its transpose lacks edge_perm or edges, or has self-loops of its own")
    check_names(names)
    return Parts(forward, backward, loop, tuple(names), tuple(counts.items()))


def _segments(file: Arrays, way: str, dtype: torch.dtype) -> Segments:
    """One direction: arrays of the right types, with lengths that agree."""
    found = {
        name: torch.from_numpy(file[f"{way}.{name}"]) for name in _ARRAYS if f"{way}.{name}" in file
    }
    structure = Segments(**found)
    index = structure.col.dtype
    expected = {"seg_rel": torch.int32, "edge_added": torch.bool, **dict.fromkeys(_VALUES, dtype)}
    sizes = {"row_ptr": structure.row_ptr.numel(), "seg_ptr": structure.num_segments + 1}
    for name, array in found.items():
        every = structure.num_segments if name.startswith("seg") else structure.num_edges
        if array.shape != (sizes.get(name, every),) or not len(structure.row_ptr):
            raise ValueError("the lengths of its arrays disagree")
        if array.dtype != expected.get(name, index) or index not in (torch.int32, torch.int64):
            raise ValueError(
                f"{way}.{name} is {array.dtype}, expected {expected.get(name, 'int32')}"
            )
    if structure.seg_val is not None and structure.edge_val is not None:
        raise ValueError(f"its {way} edges have two values each")
    return structure


def _verify(parts: Parts) -> None:
    """Check every entry: what passes could have been built."""
    forward, backward, loop, names, _ = parts
    for structure in (forward, backward):
        segments.check_order(structure, len(names))
    segments.check_transpose(forward, backward)
    values = forward.values(loop.dtype)
    check_values(forward, values, forward.loops(loop), loop, names)
    if not torch.equal(backward.values(loop.dtype), values[backward.edge_perm]):
        raise ValueError("its transpose has other values")


def _names(names: NDArray[Any]) -> list[str]:
    if names.ndim != 1 or (names.dtype.kind != "U" and len(names)):
        raise ValueError(f"expected a list of names, got {names.dtype} {names.shape}")
    return [str(name) for name in names]
