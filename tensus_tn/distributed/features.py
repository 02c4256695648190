"""Rows of all nodes, handed out to their owners and brought together again."""

from __future__ import annotations

import torch
from torch import Tensor

from tensus_tn.distributed.handshake import handshake, telling
from tensus_tn.distributed.partitioning import Partition
from tensus_tn.distributed.processes import Processes


def scatter(
    features: Tensor | None, partition: Partition, processes: Processes, source: int
) -> Tensor:
    """The rows of the own nodes, of what the process `source` has of all (N, ...)."""
    kind, rows, give = None, torch.empty(0), [0] * processes.size
    with telling(processes):
        _check_rank(processes, source, "source")
        if processes.rank == source:
            whole = _checked("features", features, len(partition.owner), f"process {source}")
            kind = whole.dtype, tuple(whole.shape[1:])
            rows = whole.index_select(0, torch.argsort(partition.owner, stable=True))
            give = torch.bincount(partition.owner, minlength=partition.parts).tolist()
    handshake(processes, {"source": source})
    dtype, shape = processes.gather(kind)[source]
    if processes.rank != source:
        rows = torch.empty(0, *shape, dtype=dtype)
    return processes.exchange_lists(rows, give)[0]


def gather(rows: Tensor, partition: Partition, processes: Processes, target: int) -> Tensor | None:
    """The rows of all nodes on the process `target`, given those of the own nodes on each."""
    own = int((partition.owner == processes.rank).sum())
    with telling(processes):
        _check_rank(processes, target, "target")
        rows = _checked("rows", rows, own, f"process {processes.rank}, one for each own node")
    kind = rows.dtype, tuple(rows.shape[1:])
    handshake(processes, {"target": target, "types and shapes of rows": kind})
    give = [0] * processes.size
    give[target] = own
    received, _ = processes.exchange_lists(rows, give)
    if processes.rank != target:
        return None
    whole = torch.empty_like(received)
    whole[torch.argsort(partition.owner, stable=True)] = received
    return whole


def _checked(what: str, rows: Tensor | None, count: int, where: str) -> Tensor:
    """Rows that can be sent."""
    if not isinstance(rows, Tensor):
        raise TypeError(f"{what} must be a tensor on {where}, got {type(rows).__name__}")
    if rows.layout != torch.strided or rows.device.type != "cpu":
        raise TypeError(f"{what} must be dense and on the CPU, got {rows.layout} on {rows.device}")
    if not rows.dim() or len(rows) != count:
        raise ValueError(f"{what} must have {count} rows on {where}, got {tuple(rows.shape)}")
    return rows.detach()


def _check_rank(processes: Processes, rank: int, what: str) -> None:
    if not 0 <= rank < processes.size:
        raise ValueError(f"{what} must be a process 0 .. {processes.size - 1}, got {rank}")
