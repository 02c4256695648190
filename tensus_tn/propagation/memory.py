"""How much memory a propagation takes, part by part, from the counts of a graph alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from tensus_tn._arguments import check_size
from tensus_tn.dag import Dag, Node
from tensus_tn.propagation.segments import index_dtype


@dataclass(frozen=True)
class Memory:
    """The bytes of every part of a propagation; made by `RelationGraph.memory` or `memory_of`.

    Attributes:
        parts: Bytes by what they are for.
        forward: What a forward pass takes without gradients: the edges one way, input and states.
        training: What a training step takes: all of it. Parameters, and what stands before and after
            the propagation, are not counted.

    Example:
        >>> print(memory_of(Dag.path(2), 2, 64, nodes=1000, edges=5000))
        edges, forward                   84,008
        edges, transposed               104,008
        input                           256,000
        states                          768,000
        gradients                     1,024,000
        forward                       1,108,008
        training step                 2,236,016
    """

    parts: Mapping[str, int]

    @property
    def forward(self) -> int:
        """Bytes of a forward pass without gradients."""
        names = ("edges, forward", "input", "states", "halo")
        return sum(self.parts.get(name, 0) for name in names)

    @property
    def training(self) -> int:
        """Bytes of a training step."""
        return sum(self.parts.values())

    def __str__(self) -> str:
        lines = {**self.parts, "forward": self.forward, "training step": self.training}
        return "\n".join(f"{name:<20} {size:>18,}" for name, size in lines.items())


def memory_of(
    dag: Dag,
    rank: int | Mapping[Node, int],
    features: int,
    *,
    nodes: int,
    edges: int,
    segments: int | None = None,
    dtype: torch.dtype = torch.float32,
    weighted: bool = False,
    machines: int = 1,
    halo: int = 0,
) -> Memory:
    """The memory of a propagation over a graph of which only the counts are known.

    Args:
        dag: The states and their links.
        rank: Of the inner states, or of every state by its node; source and sink have rank 1.
        features: Of each state.
        nodes: Of the graph.
        edges: Over all relations, those that are stored: reverse ones too, folded self-loops not.
        segments: Non-empty (node, relation) pairs; as many as edges, the most there can be, if None.
        dtype: Of the states; values of edges are float32, or float64 for float64.
        weighted: Whether edges have values of their own; else a segment has one, as means do.
        machines: Among how many the nodes are shared out evenly: the result is of each.
        halo: Nodes of other machines that edges of one come from. Their rows of the state that is
            being sent are held, too.

    Example:
        >>> mag = memory_of(Dag.path(2), 2, 64, nodes=1_939_743, edges=42_222_014)
        >>> f"{mag.training / 1e9:.1f} GB"
        '5.5 GB'
    """
    sizes = {"features": features, "nodes": nodes, "edges": edges, "machines": machines}
    for what, size in sizes.items():
        if what != "edges" or size:
            check_size(what, size)
    segments = edges if segments is None else segments
    ranks = _ranks(dag, rank)
    own = -(-nodes // machines)
    own_edges, own_segments = -(-edges // machines), -(-segments // machines)
    index = index_dtype(own + halo, own_edges).itemsize
    value = torch.float64.itemsize if dtype == torch.float64 else torch.float32.itemsize
    structure = index * (own + 1 + own_segments + 1 + own_edges) + 4 * own_segments
    row = features * dtype.itemsize
    parts = {
        "edges, forward": structure + value * (own_edges if weighted else own_segments),
        "edges, transposed": structure + (index + value) * own_edges,
        "input": own * ranks[0] * row,
        "states": own * sum(ranks[1:]) * row,
        "gradients": own * sum(ranks) * row,
    }
    if halo:
        parts["halo"] = halo * max(ranks) * row
    return Memory(parts)


def _ranks(dag: Dag, rank: int | Mapping[Node, int]) -> list[int]:
    if isinstance(rank, Mapping):
        if missing := [node for node in dag.nodes if node not in rank]:
            raise ValueError(f"rank has no entry for the states {missing}")
        return [check_size(f"rank of {node!r}", rank[node]) for node in dag.nodes]
    ends = (dag.source, dag.sink)
    return [1 if node in ends else check_size("rank", rank) for node in dag.nodes]


def out_of_memory(error: RuntimeError, nodes: int, memory: Memory) -> MemoryError:
    """The error of an allocation that failed, with the sizes of what was asked for."""
    reason = str(error).splitlines()[0]
    return MemoryError(
        f"no memory: a propagation like this one, over {nodes:,} nodes, takes in bytes\n{memory}\n"
        f"({reason})"
    )


#: What errors of a failed allocation say; the last is all that torch tells an extension of it.
_REASONS = ("not enough memory", "can't allocate memory", "bad_alloc", "API call failed")


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether torch or the kernels could not allocate."""
    return isinstance(error, torch.OutOfMemoryError) or any(r in str(error) for r in _REASONS)
