"""The file format of a RelationGraph: an `.npz` of plain arrays, edges in the forward order."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tensus_tn._files import open_arrays, require_size, size_limit, write_atomically
from tensus_tn.propagation import segments
from tensus_tn.propagation.assembly import Parts, checked_dtype, fill
from tensus_tn.propagation.node_ids import node_counts, require_ids

_FORMAT = "tensus_tn.RelationGraph/1"


def write(path: str | os.PathLike[str], parts: Parts) -> None:
    """Write a graph to a file, whole or not at all."""
    forward = parts.forward.apply(lambda t: t.detach().cpu())
    seg, loop = forward.edge_seg(), parts.loop.cpu()
    arrays: dict[str, Any] = {
        "format": np.array(_FORMAT),
        "row": forward.seg_row()[seg].to(forward.col.dtype).numpy(),
        "rel": forward.seg_rel[seg].numpy(),
        "col": forward.col.numpy(),
        "value": forward.values(loop.dtype).numpy(),
        "seg_loop": forward.loops(loop).numpy(),
        "loop": loop.numpy(),
        "relation_names": np.array(parts.relation_names, dtype=np.str_),
        **({} if forward.edge_added is None else {"added": forward.edge_added.numpy()}),
        "type_names": np.array([name for name, _ in parts.node_counts], dtype=np.str_),
        "type_counts": np.array([count for _, count in parts.node_counts], dtype=np.int64),
    }
    write_atomically(path, lambda file: np.savez(file, **arrays))


@torch.inference_mode(False)  # as in `assemble`
def read(path: str | os.PathLike[str], max_bytes: int | None = None) -> Parts:
    """Read, check and sort; the structure is built anew, so a bad file can't give a bad one."""
    name = os.fspath(path)
    with open_arrays(path, "a graph that RelationGraph.save wrote", max_bytes) as file:
        if str(file["format"]) != _FORMAT:
            raise ValueError(f"{name} is of format {file['format']}, expected {_FORMAT}")
        names = _names(name, file["relation_names"])
        types, sizes = _names(name, file["type_names"]), file["type_counts"]
        if sizes.shape != (len(types),) or len(set(types)) < len(types):
            raise ValueError(f"{name}: expected a count for each of {types}, got {sizes}")
        counts = node_counts(dict(zip(types, sizes.tolist(), strict=True)))
        row, rel, col = (torch.from_numpy(file[key]).long() for key in ("row", "rel", "col"))
        value, seg_loop, loop = (
            torch.from_numpy(file[key]) for key in ("value", "seg_loop", "loop")
        )
        added = torch.from_numpy(file["added"]).bool() if "added" in file else None

    num_nodes = sum(counts.values())
    # Pointers to the segments of all nodes, both ways, are not in the file.
    require_size(f"{name}: {num_nodes} nodes", 16 * num_nodes, size_limit(path, max_bytes))
    if row.ndim != 1 or any(
        t.shape != row.shape for t in (rel, col, value, added) if t is not None
    ):
        raise ValueError(f"{name}: the lengths of its arrays disagree")
    require_ids(f"{name}: receiving node", row, num_nodes)
    require_ids(f"{name}: relation", rel, len(names))
    require_ids(f"{name}: sending node", col, num_nodes)
    forward, order, start = segments.sort_into_segments(row, rel, col, num_nodes, len(names))
    expected = (start.shape, (forward.num_segments,), (len(names),))
    if (order.shape, seg_loop.shape, loop.shape) != expected:
        raise ValueError(f"{name}: the lengths of its arrays disagree")
    value = value[order]
    if added is not None:
        forward = replace(forward, edge_added=added[order])
    backward = segments.transpose(forward, len(names))
    dtype = checked_dtype(value.dtype)
    try:
        return fill(forward, backward, value, seg_loop, loop, names, counts, dtype)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _names(file: str, names: NDArray[Any]) -> list[str]:
    if names.ndim != 1 or (names.dtype.kind != "U" and len(names)):
        raise ValueError(f"{file}: expected a list of names, got {names.dtype} {names.shape}")
    return [str(name) for name in names]
