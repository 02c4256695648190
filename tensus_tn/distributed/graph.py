"""DistributedGraph: a relation graph whose rows are spread over processes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from tensus_tn._torch_modes import lasting
from tensus_tn.distributed import features as feature_rows
from tensus_tn.distributed import graph_files
from tensus_tn.distributed.building import OwnRows, from_edges
from tensus_tn.distributed.halo import Halo
from tensus_tn.distributed.handshake import handshake, quick_check, telling
from tensus_tn.distributed.local_rows import LocalRows, split_rows, take_rows
from tensus_tn.distributed.partitioning import Partition
from tensus_tn.distributed.passes import Propagation
from tensus_tn.distributed.problem import Problem
from tensus_tn.distributed.processes import Processes
from tensus_tn.distributed.row_plan import Way, plan_rows
from tensus_tn.propagation.assembly import GraphOptions
from tensus_tn.propagation.graph_part import GraphPart
from tensus_tn.propagation.node_ids import RelationKey
from tensus_tn.propagation.relation_graph import RelationGraph
from tensus_tn.propagation.rows import Plans
from tensus_tn.propagation.segments import Segments

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True, eq=False, repr=False)
class DistributedGraph(GraphPart):
    """The rows of a relation graph that this process owns, and who has the others.

    `propagate`, `propagate_dag` and the layers of `tensus_tn.nn` take it in place of a
    `RelationGraph`. Features are those of the own nodes (`scatter` hands them out), results too.
    They are, bit for bit, those of one process; gradients of weights are this process's share, and
    their sum over the processes is the gradient: see `sum_gradients`.

    All processes must make the same calls in the same order. Second derivatives, learned edge
    values and `torch.compile` are for one process.

    Example:
        >>> from tensus_tn import Dag, propagate_dag
        >>> from tensus_tn.distributed import partition
        >>> ring = torch.stack([torch.arange(6), torch.arange(1, 7) % 6])
        >>> whole = RelationGraph.from_edge_index({"next": ring}, 6, identity=True)
        >>> g = DistributedGraph.from_graph(whole, partition(whole, 1))  # under torchrun: more
        >>> g
        DistributedGraph(process 0 of 1: 6 of 6 nodes, 6 edges, halo 0 forward and 0 backward)
        >>> h = g.scatter(torch.arange(6.0).unsqueeze(1))
        >>> propagate_dag(g, Dag.path(1), h, {(0, 1): torch.ones(2, 1, 1)}).flatten()
        tensor([5., 1., 3., 5., 7., 9.])
    """

    forward: LocalRows
    backward: LocalRows
    loop: Tensor
    relation_names: tuple[str, ...]
    node_counts: tuple[tuple[str, int], ...]
    edges_by_relation: Tensor
    partition: Partition
    processes: Processes

    @classmethod
    def from_graph(
        cls, graph: RelationGraph, partition: Partition, group: dist.ProcessGroup | None = None
    ) -> DistributedGraph:
        """The rows of this process, from the whole graph."""
        processes = Processes.of(group)
        _check_partition(partition, processes)
        with telling(processes):
            if dict(graph.node_counts) != dict(partition.node_counts):
                raise ValueError(
                    f"the partition is of {dict(partition.node_counts)} nodes, the graph has "
                    f"{dict(graph.node_counts)}"
                )
            if graph.forward.edge_val is not None and graph.forward.edge_val.requires_grad:
                raise ValueError("edge values that learn are for one process: detach them")
        own = partition.own(processes.rank)
        rows = OwnRows(
            take_rows(graph.forward, own),
            take_rows(graph.backward, own),
            graph.loop,
            graph.relation_names,
            own,
        )
        return cls._of(rows, partition, processes)

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Mapping[RelationKey, Tensor],
        partition: Partition,
        *,
        edge_weight: Mapping[RelationKey, Tensor] | None = None,
        group: dist.ProcessGroup | None = None,
        **options: Unpack[GraphOptions],
    ) -> DistributedGraph:
        """From the edges that this process's nodes receive; no process needs the whole graph.

        Args:
            edge_index: As in `RelationGraph.from_edge_index`, ids and all, but only the edges into
                own nodes (`partition.rows` picks them); every process names the same relations.
            partition: Who owns which node.
            edge_weight: Values (E,) of the edges given.
            group: The processes; all if None.
            **options: Those of `RelationGraph`; sums for `"sym"` are over all processes.
        """
        processes = Processes.of(group)
        _check_partition(partition, processes)
        rows = from_edges(edge_index, edge_weight or {}, partition, processes, **options)
        return cls._of(rows, partition, processes)

    @classmethod
    def _of(cls, rows: OwnRows, partition: Partition, processes: Processes) -> DistributedGraph:
        handshake(
            processes,
            {
                "relations": rows.relation_names,
                "values": rows.loop.dtype,
                "self-loops": rows.loop.tolist(),
            },
        )
        edges = torch.zeros(len(rows.relation_names), dtype=torch.int64)
        edges.index_add_(0, rows.forward.seg_rel.long(), rows.forward.seg_ptr.diff().long())

        def one_way(segments: Segments) -> LocalRows:
            col = segments.col.long().unique()
            foreign = col[partition.owner[col] != processes.rank]
            halo = Halo.of(foreign, partition.owner, rows.own, processes)
            return split_rows(segments, rows.forward, rows.own, halo)

        return cls(
            one_way(rows.forward),
            one_way(rows.backward),
            rows.loop,
            rows.relation_names,
            tuple(partition.counts(processes.rank).items()),
            processes.sum(edges),
            partition,
            processes,
        )

    @property
    def device(self) -> torch.device:
        """Where all tensors are: these passes are for CPUs."""
        return self.loop.device

    @property
    def dtype(self) -> torch.dtype:
        """The type of the values."""
        return self.loop.dtype

    @property
    def total_nodes(self) -> int:
        """The nodes of the whole graph."""
        return len(self.partition.owner)

    @property
    def num_edges(self) -> int:
        """The edges into own nodes."""
        rows = self.forward
        return rows.interior.segments.num_edges + rows.boundary.segments.num_edges

    @property
    def own(self) -> Tensor:
        """The global ids of the own nodes, ascending."""
        return self.partition.own(self.processes.rank)

    def checking(self) -> AbstractContextManager[None]:
        """While the arguments of `states` are made: a mistake on one process is raised on all."""
        return telling(self.processes, quick_check)

    def agree(self, settings: Mapping[str, object]) -> None:
        """A `DisagreementError` on all processes where their settings differ; all call this."""
        quick_check(self.processes, settings)

    def states(
        self,
        h: Tensor,
        w: Tensor,
        ranks: Sequence[int],
        tails: Sequence[int],
        heads: Sequence[int],
        chosen: Sequence[int] | None,
        rows: Tensor | None,
        support: Tensor | None,
    ) -> list[Tensor]:
        """The states 1 .. K at the own rows, or at those that `rows` and `support` leave.

        All processes call this together, each with rows of its own.
        """
        sums = torch.float64 if h.dtype == torch.float64 else torch.float32
        with self.checking():
            if sums != self.dtype:
                raise TypeError(
                    f"features are {h.dtype}, but the graph's values are {self.dtype}: build it with "
                    f"dtype={sums}"
                )
        problem = Problem(
            tuple(ranks), tuple(tails), tuple(heads), None if chosen is None else tuple(chosen)
        )
        quick_check(
            self.processes,
            {
                "links": problem,
                "features": (h.shape[2], h.dtype),
                "rows": "all" if rows is None else "some",
                "support": "all" if support is None else "some",
                "gradients": (
                    torch.is_grad_enabled() and h.requires_grad,
                    torch.is_grad_enabled() and w.requires_grad,
                ),
            },
        )
        ways = self._ways(problem, rows, support)
        stored = ways[0].states[0].stored
        h = h.contiguous() if stored is None else h.index_select(0, stored)
        states = list(Propagation.apply(self, problem, ways, h, w.to(sums).contiguous()))
        if rows is not None:
            states[-1] = states[-1].index_select(0, ways[0].states[-1].find(rows))
        return states

    def _ways(
        self, problem: Problem, rows: Tensor | None, support: Tensor | None
    ) -> tuple[Way, Way]:
        """What each process computes and fetches; kept for the next call with the same rows on all."""
        some = [self._number(ids) for ids in (rows, support) if ids is not None]
        if some:
            some = self.processes.sum(torch.tensor(some)).tolist()
        key = problem.tails, problem.heads, problem.chosen, rows is None, support is None, *some
        with lasting():
            return self._plans.fetch(
                key,
                lambda: plan_rows(self.forward, self.backward, self.loop, problem, rows, support),
            )

    def _number(self, ids: Tensor) -> int:
        """A number for some rows of this process; the sum over all is a key for those of all."""
        own = blake2b(ids.numpy().tobytes(), salt=b"%d" % self.processes.rank, digest_size=8)
        return int.from_bytes(own.digest(), "little", signed=True)

    @cached_property
    def _plans(self) -> Plans[tuple[Way, Way]]:
        return Plans()

    def scatter(self, features: Tensor | None, source: int = 0) -> Tensor:
        """The rows of the own nodes, of features (N, ...) that one process has; all call this.

        Args:
            features: Of all nodes, on the process `source`; None on the others.
            source: Who has them.
        """
        return feature_rows.scatter(features, self.partition, self.processes, source)

    def gather(self, rows: Tensor, target: int = 0) -> Tensor | None:
        """The rows of all nodes (N, ...), in their order, on one process; None on the others."""
        return feature_rows.gather(rows, self.partition, self.processes, target)

    def bytes_per_pass(self, width: int, *, dtype: torch.dtype = torch.float32) -> int:
        """What one forward pass of a state fetches: `halo * width` numbers, `width = d * F`."""
        return len(self.forward.halo) * width * dtype.itemsize

    @property
    def bytes_received(self) -> int:
        """What this process has fetched of states and gradients so far."""
        return self.forward.halo.received.bytes + self.backward.halo.received.bytes

    def verify(self) -> None:
        """Check all parts together: every edge is known to both its ends; all processes call this.

        Raises:
            ValueError: If it is not so, which only a damaged file can bring about.
        """
        graph_files.verify(self)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write this process's part into a folder that all of them share; all call this."""
        graph_files.write(self, folder)

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        *,
        mmap: bool = True,
        group: dist.ProcessGroup | None = None,
    ) -> DistributedGraph:
        """The part of this process that `save` wrote, mapped or read; all call this.

        There must be as many processes as wrote it.
        """
        processes = Processes.of(group)
        return cls(*graph_files.read(folder, processes, mmap=mmap))

    def __repr__(self) -> str:
        return (
            f"DistributedGraph(process {self.processes.rank} of {self.processes.size}: "
            f"{self.num_nodes} of {self.total_nodes} nodes, {self.num_edges} edges, "
            f"halo {len(self.forward.halo)} forward and {len(self.backward.halo)} backward)"
        )


def _check_partition(partition: Partition, processes: Processes) -> None:
    with telling(processes):
        if partition.parts != processes.size:
            raise ValueError(
                f"a partition in {partition.parts} parts needs as many processes, there are "
                f"{processes.size}"
            )
    handshake(processes, {"partition": partition.digest})
