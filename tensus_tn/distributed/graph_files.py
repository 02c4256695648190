"""A DistributedGraph on disk: a folder with the partition, and one file for each part."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tensus_tn._files import make_folder, map_arrays, open_arrays, write_arrays
from tensus_tn.distributed.halo import Halo
from tensus_tn.distributed.handshake import handshake, telling, together
from tensus_tn.distributed.local_rows import LocalRows, Rows
from tensus_tn.distributed.partitioning import Partition
from tensus_tn.distributed.processes import Processes
from tensus_tn.propagation.node_ids import require_ids
from tensus_tn.propagation.segments import Segments

if TYPE_CHECKING:
    from tensus_tn.distributed.graph import DistributedGraph

_FORMAT = "tensus_tn.DistributedGraph/1"
_WHAT = "a part of a graph that DistributedGraph.save wrote"
_ARRAYS = [field.name for field in fields(Segments)]

Arrays = dict[str, NDArray[Any]]


def _part_file(folder: str | os.PathLike[str], processes: Processes) -> Path:
    return Path(folder) / f"part-{processes.rank}-of-{processes.size}.npz"


def write(graph: DistributedGraph, folder: str | os.PathLike[str]) -> None:
    """Write the part of this process, and by the first one the partition; none returns before all."""
    with together(graph.processes):
        _write(graph, folder)


def _write(graph: DistributedGraph, folder: str | os.PathLike[str]) -> None:
    make_folder(Path(folder))
    arrays: Arrays = {
        "format": np.array(_FORMAT),
        "partition": np.array(graph.partition.digest),
        "relation_names": np.array(graph.relation_names, dtype=np.str_),
        "edges_by_relation": graph.edges_by_relation.numpy(),
        "loop": graph.loop.numpy(),
    }
    for way, rows in (("forward", graph.forward), ("backward", graph.backward)):
        arrays.update({f"{way}.{name}": array for name, array in _of_direction(rows).items()})
    write_arrays(_part_file(folder, graph.processes), arrays)
    if graph.processes.rank == 0:
        counts = graph.partition.node_counts
        partition = {
            "format": np.array(_FORMAT),
            "owner": graph.partition.owner.numpy(),
            "parts": np.array(graph.partition.parts),
            "type_names": np.array(list(counts), dtype=np.str_),
            "type_counts": np.array(list(counts.values()), dtype=np.int64),
        }
        write_arrays(Path(folder) / "partition.npz", partition)


def _of_direction(rows: LocalRows) -> Arrays:
    halo = rows.halo
    arrays: Arrays = {
        "own": np.array(rows.own),
        "halo.ids": halo.ids.numpy(),
        "halo.receive": np.array(halo.receive, dtype=np.int64),
        "halo.send": halo.send.numpy(),
        "halo.give": np.array(halo.give, dtype=np.int64),
    }
    for name, part in (("interior", rows.interior), ("boundary", rows.boundary)):
        for key in _ARRAYS:
            if (array := getattr(part.segments, key)) is not None:
                arrays[f"{name}.{key}"] = array.numpy()
        arrays[f"{name}.pair_ptr"], arrays[f"{name}.pair_rel"] = (t.numpy() for t in part.pairs)
        for key in ("seg_loop", "number"):
            if (array := getattr(part, key)) is not None:
                arrays[f"{name}.of_{key}"] = array.numpy()
    return arrays


def read(folder: str | os.PathLike[str], processes: Processes, *, mmap: bool) -> tuple[Any, ...]:
    """The fields of a DistributedGraph."""
    with telling(processes):
        whole = _open(Path(folder) / "partition.npz", mmap)
        names = map(str, whole["type_names"])
        counts = dict(zip(names, whole["type_counts"].tolist(), strict=True))
        partition = Partition(torch.from_numpy(whole["owner"]), int(whole["parts"]), counts)
        if partition.parts != processes.size:
            raise ValueError(
                f"{os.fspath(folder)} holds a graph in {partition.parts} parts, there are "
                f"{processes.size} processes: start as many, or partition it again"
            )
        path = _part_file(folder, processes)
        file = _open(path, mmap)
        if str(file["partition"]) != partition.digest:
            raise ValueError(f"{path} belongs to another partition than the one beside it")
        forward, backward = (
            _direction(file, way, processes, path) for way in ("forward", "backward")
        )
        relations = tuple(str(name) for name in file["relation_names"])
        loop, edges = (torch.from_numpy(file[key]) for key in ("loop", "edges_by_relation"))
    handshake(
        processes,
        {
            "partition": partition.digest,
            "relations": relations,
            "values": loop.dtype,
            "edges of all parts": edges.tolist(),
        },
    )
    _check_exchanges(forward, backward, path)
    node_counts = tuple(partition.counts(processes.rank).items())
    return forward, backward, loop, relations, node_counts, edges, partition, processes


def _open(path: Path, mmap: bool) -> Mapping[str, NDArray[Any]]:
    if mmap:
        file: dict[str, NDArray[Any]] = map_arrays(path, _WHAT)
    else:
        with open_arrays(path, _WHAT, None) as arrays:
            file = {name: arrays[name] for name in arrays}
    if str(file.get("format")) != _FORMAT:
        raise ValueError(f"{path} is not {_WHAT}: its format is {file.get('format')}")
    return file


def _direction(
    file: Mapping[str, NDArray[Any]], way: str, processes: Processes, path: Path
) -> LocalRows:
    def tensor(name: str) -> Tensor:
        if f"{way}.{name}" not in file:
            raise ValueError(f"{path} is not {_WHAT}: {way}.{name} is missing")
        return torch.from_numpy(file[f"{way}.{name}"])

    def optional(name: str) -> Tensor | None:
        return tensor(name) if f"{way}.{name}" in file else None

    def rows(name: str) -> Rows:
        row_ptr, seg_rel, seg_ptr, col = (tensor(f"{name}.{key}") for key in _ARRAYS[:4])
        values = [optional(f"{name}.{key}") for key in _ARRAYS[4:]]
        pairs = tensor(f"{name}.pair_ptr"), tensor(f"{name}.pair_rel")
        segments = Segments(row_ptr, seg_rel, seg_ptr, col, *values)
        return Rows(segments, pairs, optional(f"{name}.of_seg_loop"), optional(f"{name}.of_number"))

    ids, send = tensor("halo.ids"), tensor("halo.send")
    receive, give = (tensor(f"halo.{key}").tolist() for key in ("receive", "give"))
    if not len(receive) == len(give) == processes.size:
        raise ValueError(
            f"{path} is not {_WHAT}: its halo is not one of {processes.size} processes"
        )
    if sum(receive) != len(ids):
        raise ValueError(f"{path} is not {_WHAT}: its halo has {len(ids)} rows, not {sum(receive)}")
    halo = Halo(processes, ids, receive, send, give)
    return LocalRows(rows("interior"), rows("boundary"), halo, int(tensor("own")))


def _check_exchanges(forward: LocalRows, backward: LocalRows, path: Path) -> None:
    """Parts must agree on who sends how many rows: a wrong number would end the process."""
    processes = forward.halo.processes
    everyone = processes.gather((forward.halo.give, backward.halo.give))
    with together(processes):
        for rows, theirs in zip((forward, backward), zip(*everyone, strict=True), strict=True):
            halo, send = rows.halo, rows.halo.send
            if sum(halo.give) != len(send) or [n[processes.rank] for n in theirs] != halo.receive:
                raise ValueError(
                    f"{path}: the parts do not agree on who sends how many rows: save anew"
                )
            if len(send) and not (int(send.min()) >= 0 and int(send.max()) < rows.own):
                raise ValueError(f"{path}: rows that others ask for are not there")


def verify(graph: DistributedGraph) -> None:
    """Check that both directions have the same edges, and the owners what is asked of them."""
    own, processes = graph.own, graph.processes
    with together(processes):
        for rows in (graph.forward, graph.backward):
            require_ids("halo", rows.halo.ids, graph.total_nodes)
        try:
            sums = torch.stack(
                [
                    _fingerprint(graph.forward, own, graph.dtype, False),
                    _fingerprint(graph.backward, own, graph.dtype, True),
                ]
            )
        except (IndexError, RuntimeError) as error:
            raise ValueError(f"its rows lead to others that are not there: {error}") from error
    forward, backward = processes.sum(sums).tolist()
    problem = None if forward == backward else "the two directions of the graph differ"
    for rows in (graph.forward, graph.backward):
        again = Halo.of(rows.halo.ids.sort().values, graph.partition.owner, own, processes)
        if not (torch.equal(again.send, rows.halo.send) and torch.equal(again.ids, rows.halo.ids)):
            problem = f"process {processes.rank} sends other rows than are asked for"
    if problems := [said for said in processes.gather(problem) if said is not None]:
        raise ValueError(problems[0])


def _fingerprint(rows: LocalRows, own: Tensor, dtype: torch.dtype, transposed: bool) -> Tensor:
    """A sum over edges that does not depend on their order: of receiver, sender, relation, value."""
    columns = torch.cat([own, rows.halo.ids])
    total = torch.zeros((), dtype=torch.int64)
    for part in (rows.interior, rows.boundary):
        seg = part.segments.edge_seg()
        row = (
            part.segments.seg_row()
            if part.number is None
            else part.number.long()[part.segments.seg_row()]
        )
        ends = own[row[seg]], columns[part.segments.col.long()]
        receiver, sender = ends[::-1] if transposed else ends
        values = part.segments.values(dtype)
        bits = values.view(torch.int32 if dtype == torch.float32 else torch.int64).long()
        mixed = (receiver * 1000003 + sender) * 8191 + part.segments.seg_rel[seg].long()
        mixed = (mixed ^ (mixed >> 29)) * -0x40A7B892E31B1A47 + bits
        total += ((mixed ^ (mixed >> 32)) * 0x9E3779B97F4A7C1).sum()
    return total
