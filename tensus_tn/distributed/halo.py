"""The rows of a state that other processes have: asked for once, fetched before every pass."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor

from tensus_tn.distributed.processes import Processes


@dataclass
class Received:
    """A count of bytes."""

    bytes: int = 0


@dataclass(eq=False)
class Halo:
    """The columns of a process's rows that it does not own, ordered by owner, then by id.

    Attributes:
        processes: Who takes part.
        ids: Their global ids (H,).
        receive: How many of them each process has.
        send: Which of the own rows others ask for, those of one process after those of another.
        give: How many of these go to each process.
        received: What came in so far.
    """

    processes: Processes
    ids: Tensor
    receive: list[int]
    send: Tensor
    give: list[int]
    received: Received = field(default_factory=Received)

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

    def ask(self, wanted: Tensor) -> Tensor:
        """Tell the owners which rows (H,) are wanted; of the rows to send, which ones others want."""
        return self._flags(wanted, self.receive, self.give)

    def tell(self, there: Tensor) -> Tensor:
        """Which of the rows (H,) their owners have, given which of the own rows are there."""
        return self._flags(there[self.send], self.give, self.receive)

    def _flags(self, flags: Tensor, give: list[int], receive: list[int]) -> Tensor:
        if self.processes.size == 1:
            return flags
        out = torch.empty(sum(receive), dtype=torch.uint8)
        self.processes.finish(self.processes.start(out, flags.byte(), receive, give))
        return out.bool()

    def narrowed(self, wanted: Tensor, asked: Tensor, place: Tensor) -> Halo:
        """The same for some rows only: those wanted here, and those that others asked for.

        Args:
            wanted: Of the foreign rows (H,).
            asked: What `ask` said of the rows to send.
            place: Where each own row stands in the states that are to be sent.
        """

        def counts(flags: Tensor, sizes: list[int]) -> list[int]:
            return [int(part.sum()) for part in flags.split(sizes)]

        return Halo(
            self.processes,
            self.ids[wanted],
            counts(wanted, self.receive),
            place[self.send[asked]].long(),
            counts(asked, self.give),
            self.received,
        )

    def start(self, state: Tensor) -> Exchange:
        """Begin to fetch the rows (H, d, F) of a state, given the own ones, from their owners."""
        halo: Tensor = torch.ops.tensus_tn.empty_state(state, len(self), state.shape[1])
        if self.processes.size == 1:
            return Exchange(self.processes, halo, None, None)
        rows = state.index_select(0, self.send)
        # Sizes that do not fit would end the process.
        if len(halo) != sum(self.receive) or len(rows) != sum(self.give):
            raise ValueError(
                f"a halo of {len(halo)} rows, {sum(self.receive)} of which come from others, and "
                f"{len(rows)} rows to send, {sum(self.give)} of which have a destination"
            )
        self.received.bytes += halo.numel() * halo.element_size()
        work = self.processes.start(halo, rows, self.receive, self.give)
        return Exchange(self.processes, halo, rows, work)


@dataclass
class Exchange:
    """Rows that are under way; those that are sent must live until they have arrived.

    Attributes:
        halo: Where they arrive, (H, d, F).
    """

    processes: Processes
    halo: Tensor
    rows: Tensor | None
    work: dist.Work | None

    def wait(self) -> Tensor:
        """The rows, once all are here."""
        if self.work is not None:
            self.processes.finish(self.work)
        self.rows = self.work = None
        return self.halo
