"""The processes that work together, and the few things they say to each other."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

_T = TypeVar("_T")


class PeerError(RuntimeError):
    """Another process stopped, or did not answer in time."""


@dataclass(frozen=True)
class Processes:
    """A process group of torch.distributed, or this process alone.

    Example:
        >>> Processes.of(None)
        Processes(rank=0, size=1)
    """

    group: dist.ProcessGroup | None
    rank: int
    size: int

    @classmethod
    def of(cls, group: dist.ProcessGroup | None) -> Processes:
        """Those of a group; if None, all that `init` brought together."""
        if not dist.is_initialized():
            return cls(None, 0, 1)
        return cls(group, dist.get_rank(group), dist.get_world_size(group))

    def leave(self) -> None:
        """Take part no longer, as at the end of a program."""
        if self.size > 1 and dist.is_initialized():
            dist.destroy_process_group(self.group)

    def __repr__(self) -> str:
        return f"Processes(rank={self.rank}, size={self.size})"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "a group of processes can't be saved or copied: it lives with its processes"
        )

    def start(self, out: Tensor, rows: Tensor, receive: list[int], give: list[int]) -> dist.Work:
        """Begin to send `rows` to all others, and to receive theirs in `out`, by their numbers."""
        work: dist.Work = self._guarded(
            lambda: dist.all_to_all_single(
                out, rows, receive, give, group=self.group, async_op=True
            )
        )
        return work

    def finish(self, work: dist.Work) -> None:
        """Wait for what was begun."""
        self._guarded(work.wait)

    def exchange_lists(self, rows: Tensor, counts: list[int]) -> tuple[Tensor, list[int]]:
        """Send `counts[q]` of the rows to each process `q`; what came back, and how many of each."""
        if self.size == 1:
            return rows, counts
        sizes = torch.tensor(counts)
        theirs = torch.empty_like(sizes)
        self.finish(self.start(theirs, sizes, [1] * self.size, [1] * self.size))
        received = theirs.tolist()
        out = rows.new_empty(sum(received), *rows.shape[1:])
        self.finish(self.start(out, rows.contiguous(), received, counts))
        return out, received

    def sum(self, numbers: Tensor) -> Tensor:
        """The sum over all processes, the same on each."""
        numbers = numbers.clone()
        if self.size > 1:
            self._guarded(lambda: dist.all_reduce(numbers, group=self.group))
        return numbers

    def extremes(self, number: int) -> tuple[int, int]:
        """The least and the greatest number of any process."""
        pair = torch.tensor([-number, number])
        if self.size > 1:
            self._guarded(lambda: dist.all_reduce(pair, dist.ReduceOp.MAX, group=self.group))
        return -int(pair[0]), int(pair[1])

    def gather(self, thing: Any) -> list[Any]:
        """What every process says, by rank."""
        if self.size == 1:
            return [thing]
        said: list[Any] = [None] * self.size
        self._guarded(lambda: dist.all_gather_object(said, thing, group=self.group))
        return said

    def first(self, call: Callable[[], _T]) -> _T:
        """What the first process makes of a call that is its own; an error of it is raised on all."""
        result: tuple[_T | None, Exception | None] = None, None
        if self.rank == 0:
            try:
                result = call(), None
            except Exception as error:
                result = None, error
        value, problem = self.gather(result)[0]
        if problem is not None:
            raise problem
        return value  # type: ignore[no-any-return]

    def _guarded(self, call: Callable[[], _T]) -> _T:
        try:
            return call()
        except (RuntimeError, dist.DistBackendError) as error:
            raise PeerError(
                f"process {self.rank} of {self.size} lost another one: it stopped, the connection "
                f"is cut, or it did not answer within the timeout of {self._timeout()}; "
                f"torch says: {str(error).splitlines()[0]}"
            ) from error

    def _timeout(self) -> str:
        group: Any = dist.group.WORLD if self.group is None else self.group
        try:
            limit = group._get_backend(torch.device("cpu")).options._timeout
        except (AttributeError, RuntimeError):  # another backend
            return "its group"
        return f"{limit.total_seconds():g} s"


def init(
    *, timeout: float | timedelta = timedelta(minutes=5), backend: str | None = None
) -> Processes:
    """Bring the processes that `torchrun` started together; alone, do nothing.

    `torch.distributed.init_process_group` with two differences. Its keys in the store carry the
    number of the restart: after `torchrun` has started the processes anew, these do not read the
    addresses of those that died. And there is a timeout of minutes, not of half an hour: a process
    that hangs stops all others by then.

    Args:
        timeout: How long a process waits for the others before it gives up, in seconds.
        backend: `"gloo"`, `"nccl"`, ...; by default `"nccl"` where every process has a GPU.

    Example:
        >>> init()  # without torchrun
        Processes(rank=0, size=1)
    """
    limit = timeout if isinstance(timeout, timedelta) else timedelta(seconds=timeout)
    if limit.total_seconds() <= 0:
        raise ValueError(f"timeout must be positive, got {limit.total_seconds():g} s")
    if "WORLD_SIZE" not in os.environ or dist.is_initialized():
        return Processes.of(None)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if backend is None:
        local = int(os.environ.get("LOCAL_WORLD_SIZE", size))
        backend = "nccl" if torch.cuda.device_count() >= local > 0 else "gloo"
    dist.init_process_group(
        backend, store=_store(rank, size, limit), rank=rank, world_size=size, timeout=limit
    )
    return Processes.of(None)


def _store(rank: int, size: int, timeout: timedelta) -> dist.Store:
    """The store of torchrun's agent, with a drawer of its own for every restart."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = dist.TCPStore(
        host,
        port,
        size,
        is_master=rank == 0 and not agents,
        timeout=timeout,
        wait_for_workers=False,
        multi_tenant=True,
    )
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return dist.PrefixStore(f"tensus_tn/{restart}", store)
