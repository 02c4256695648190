"""The rows of a state that other processes have: asked for once, fetched before every pass."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor

from tensus_tn.distributed.processes import Processes


@dataclass(eq=False)
class Halo:
    """The columns of a process's rows that it does not own, ordered by owner, then by id.

    Attributes:
        processes: Who takes part.
        ids: Their global ids (H,).
        receive: How many of them each process has.
        send: Which of the own rows others ask for, those of one process after those of another.
        give: How many of these go to each process.
        bytes_received: All that came in so far.
    """

    processes: Processes
    ids: Tensor
    receive: list[int]
    send: Tensor
    give: list[int]
    bytes_received: int = field(default=0, init=False)

    @classmethod
    def of(cls, ids: Tensor, owner: Tensor, own: Tensor, processes: Processes) -> Halo:
        """Ask the owners for these nodes, given ascending; all processes call this together."""
        ids = ids[torch.argsort(owner[ids], stable=True)]
        receive = torch.bincount(owner[ids], minlength=processes.size).tolist()
        wanted, give = processes.exchange_lists(ids, receive)
        send = torch.searchsorted(own, wanted)
        if not torch.equal(own[send.clamp(max=max(len(own) - 1, 0))] if len(own) else send, wanted):
            raise ValueError(
                f"process {processes.rank} was asked for nodes that it does not own: the "
                "processes have different partitions"
            )
        return cls(processes, ids, receive, send, give)

    def __len__(self) -> int:
        return len(self.ids)

    def start(self, state: Tensor, own: int) -> Exchange:
        """Begin to fetch the rows from `own` on of a state (own + H, d, F) from their owners."""
        if self.processes.size == 1:
            return Exchange(self.processes, None, None)
        out, rows = state[own:], state[:own].index_select(0, self.send)
        if len(out) != sum(self.receive) or len(rows) != sum(self.give):
            raise ValueError(
                f"a halo of {len(self)} rows does not fit a state of {len(state)} rows, {own} own"
            )
        self.bytes_received += out.numel() * out.element_size()
        return Exchange(
            self.processes, rows, self.processes.start(out, rows, self.receive, self.give)
        )


@dataclass
class Exchange:
    """Rows that are under way; those that are sent must live until they have arrived."""

    processes: Processes
    rows: Tensor | None
    work: dist.Work | None

    def wait(self) -> None:
        """Return once all rows are here."""
        if self.work is not None:
            self.processes.finish(self.work)
        self.rows = self.work = None
