"""Rows of all nodes, handed out to their owners and brought together again."""

from __future__ import annotations

import torch
from torch import Tensor

from tensus_tn.distributed.partitioning import Partition
from tensus_tn.distributed.processes import Processes


def scatter(
    features: Tensor | None, partition: Partition, processes: Processes, source: int
) -> Tensor:
    """The rows of the own nodes, of what the process `source` has of all (N, ...)."""
    _check_rank(processes, source, "source")
    mine = processes.rank == source
    problem = None
    if mine and (features is None or len(features) != len(partition.owner)):
        shape = None if features is None else tuple(features.shape)
        problem = f"features must have {len(partition.owner)} rows on process {source}, got {shape}"
    kind = (features.dtype, tuple(features.shape[1:])) if mine and features is not None else None
    problem, kind = processes.gather((problem, kind))[source]
    if problem is not None or kind is None:
        raise ValueError(problem)
    dtype, shape = kind
    rows, give = torch.empty(0, *shape, dtype=dtype), [0] * processes.size
    if mine and features is not None:
        order = torch.argsort(partition.owner, stable=True)
        rows = features.detach().index_select(0, order)
        give = torch.bincount(partition.owner, minlength=partition.parts).tolist()
    return processes.exchange_lists(rows, give)[0]


def gather(rows: Tensor, partition: Partition, processes: Processes, target: int) -> Tensor | None:
    """The rows of all nodes on the process `target`, given those of the own nodes on each."""
    _check_rank(processes, target, "target")
    own = int((partition.owner == processes.rank).sum())
    said = processes.gather((len(rows) == own, rows.dtype, tuple(rows.shape[1:])))
    if not all(fits for fits, *_ in said) or len(set(said)) > 1:
        raise ValueError(
            f"expected one row for each own node, of one type and shape on all processes; "
            f"process {processes.rank} has {own} nodes and gave {rows.dtype} {tuple(rows.shape)}"
        )
    give = [0] * processes.size
    give[target] = own
    received, _ = processes.exchange_lists(rows.detach(), give)
    if processes.rank != target:
        return None
    whole = torch.empty_like(received)
    whole[torch.argsort(partition.owner, stable=True)] = received
    return whole


def _check_rank(processes: Processes, rank: int, what: str) -> None:
    if not 0 <= rank < processes.size:
        raise ValueError(f"{what} must be a process 0 .. {processes.size - 1}, got {rank}")
