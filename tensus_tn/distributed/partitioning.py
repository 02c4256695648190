"""Which process has which nodes of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate
from typing import Literal

import torch
from torch import Tensor

from tensus_tn.propagation.node_ids import RelationKey, node_counts, type_slices
from tensus_tn.propagation.relation_graph import RelationGraph

Method = Literal["metis", "range", "random"]
Balance = Literal["edges", "nodes"]


@dataclass(frozen=True, eq=False, repr=False)
class Partition:
    """Every node of a graph and the part that owns it.

    Attributes:
        owner: The part of every node, (N,) int64, by global ids.
        parts: How many parts there are; some may be empty.
        node_counts: The nodes of each type, as in `RelationGraph`.

    Example:
        >>> part = Partition(torch.tensor([0, 1, 0, 1]), 2, {"author": 3, "paper": 1})
        >>> part
        Partition(4 nodes in 2 parts of 2, 2)
        >>> part.own(1)
        tensor([1, 3])
        >>> part.counts(1)
        {'author': 1, 'paper': 1}
    """

    owner: Tensor
    parts: int
    node_counts: Mapping[str, int]

    def __post_init__(self) -> None:
        owner, nodes = self.owner, sum(self.node_counts.values())
        if self.parts < 1:
            raise ValueError(f"parts must be at least 1, got {self.parts}")
        if tuple(owner.shape) != (nodes,) or owner.dtype != torch.int64:
            raise ValueError(
                f"owner must be int64 ({nodes},), one part for each node, got {owner.dtype} "
                f"{tuple(owner.shape)}"
            )
        if nodes and not (int(owner.min()) >= 0 and int(owner.max()) < self.parts):
            raise ValueError(f"owner must name parts 0 .. {self.parts - 1}")

    def own(self, part: int) -> Tensor:
        """The global ids of the nodes of a part, ascending."""
        return (self.owner == part).nonzero().flatten()

    def counts(self, part: int) -> dict[str, int]:
        """How many nodes of each type a part has."""
        slices = type_slices(self.node_counts)
        return {kind: int((self.owner[s] == part).sum()) for kind, s in slices.items()}

    def rows(
        self, edge_index: Mapping[RelationKey, Tensor], part: int
    ) -> dict[RelationKey, Tensor]:
        """The edges of `RelationGraph.from_edge_index` that the nodes of a part receive.

        Example:
            >>> part = Partition(torch.tensor([0, 1, 1]), 2, {"node": 3})
            >>> part.rows({"A": torch.tensor([[0, 1, 2], [1, 0, 2]])}, 1)["A"]
            tensor([[0, 2],
                    [1, 2]])
        """
        slices = type_slices(self.node_counts)
        kept: dict[RelationKey, Tensor] = {}
        for key, index in edge_index.items():
            start = slices[key[2]].start if isinstance(key, tuple) else 0
            kept[key] = index[:, self.owner[index[1] + start] == part]
        return kept

    @cached_property
    def digest(self) -> str:
        """A short text that only equal partitions share."""
        text = repr((self.parts, tuple(self.node_counts.items()))).encode()
        hashed = blake2b(text, digest_size=16)
        hashed.update(self.owner.numpy().tobytes())
        return hashed.hexdigest()

    def require(self, digest: str) -> None:
        """Refuse what was saved under another partition: node embeddings and their optimizer, say.

        Example:
            >>> part = Partition(torch.tensor([0, 1]), 2, {"node": 2})
            >>> checkpoint = {"partition": part.digest}
            >>> part.require(checkpoint["partition"])
        """
        if digest != self.digest:
            raise ValueError(
                f"this was saved under another partition, {digest}, than that of this graph, "
                f"{self.digest}: {self}"
            )

    def __repr__(self) -> str:
        sizes = ", ".join(map(str, torch.bincount(self.owner, minlength=self.parts).tolist()))
        noun = "part" if self.parts == 1 else "parts"
        return f"Partition({len(self.owner)} nodes in {self.parts} {noun} of {sizes})"


def partition(
    graph: RelationGraph | Mapping[RelationKey, Tensor],
    parts: int,
    *,
    num_nodes: int | Mapping[str, int] | None = None,
    method: Method = "metis",
    balance: Balance = "edges",
    seed: int = 0,
) -> Partition:
    """Divide the nodes of a graph among processes.

    Every process computes the rows of its nodes. Before a pass it fetches what they need of the
    others' nodes, its *halo*, so few edges should lead from one part to another.

    Args:
        graph: A `RelationGraph`, or an `edge_index` as in `RelationGraph.from_edge_index`.
        parts: How many.
        num_nodes: With an `edge_index`: the nodes, or those of each type.
        method: `"metis"` cuts few edges (needs `pymetis`); `"range"` takes nodes in their order,
            which is good for graphs that are numbered by place; `"random"` is the worst case.
        balance: What all parts have about the same of: `"edges"` (that is, work) or `"nodes"`.
        seed: Of METIS and of `"random"`.

    Example:
        >>> ring = torch.stack([torch.arange(8), torch.arange(1, 9) % 8])
        >>> partition({"next": ring}, 2, num_nodes=8, method="range").owner
        tensor([0, 0, 0, 0, 1, 1, 1, 1])
    """
    if method not in ("metis", "range", "random"):
        raise ValueError(f"method must be 'metis', 'range' or 'random', got {method!r}")
    if balance not in ("edges", "nodes"):
        raise ValueError(f"balance must be 'edges' or 'nodes', got {balance!r}")
    row, col, counts = _edges(graph, num_nodes)
    nodes = sum(counts.values())
    work = torch.ones(nodes, dtype=torch.int64)
    if balance == "edges":  # a row costs about as much as four edges
        work = 4 + torch.bincount(row, minlength=nodes)
    if parts == 1 or not nodes:
        owner = torch.zeros(nodes, dtype=torch.int64)
    elif method == "metis":
        owner = _metis(row, col, work, parts, seed)
    elif method == "range":
        owner = ((work.cumsum(0) - work) * parts // int(work.sum())).clamp(max=parts - 1)
    else:
        generator = torch.Generator().manual_seed(seed)
        owner = torch.randint(parts, (nodes,), generator=generator)
    return Partition(owner, parts, counts)


def _edges(
    graph: RelationGraph | Mapping[RelationKey, Tensor], num_nodes: int | Mapping[str, int] | None
) -> tuple[Tensor, Tensor, dict[str, int]]:
    """The receiving and the sending nodes of all edges, and the nodes of each type."""
    if isinstance(graph, RelationGraph):
        forward = graph.forward
        row = forward.seg_row()[forward.edge_seg()]
        return row, forward.col.long(), dict(graph.node_counts)
    if num_nodes is None:
        raise ValueError(
            "num_nodes is needed with an edge_index: the nodes of each type, or of all"
        )
    counts = node_counts(num_nodes)
    starts = dict(zip(counts, accumulate([0, *counts.values()]), strict=False))
    none = torch.zeros(0, dtype=torch.int64)
    ends = [(none, none)]
    for key, (source, target) in graph.items():
        at = (starts[key[0]], starts[key[2]]) if isinstance(key, tuple) else (0, 0)
        ends.append((target.long() + at[1], source.long() + at[0]))
    row, col = (torch.cat(ids) for ids in zip(*ends, strict=True))
    if len(row) and int(torch.stack([row, col]).max()) >= sum(counts.values()):
        raise ValueError(f"an edge leads beyond the {sum(counts.values())} nodes")
    return row, col, counts


def _metis(row: Tensor, col: Tensor, work: Tensor, parts: int, seed: int) -> Tensor:
    try:
        import pymetis
    except ImportError as error:
        raise ImportError(
            'method="metis" needs pymetis: pip install "tensus_tn[distributed]", or take '
            'method="range"'
        ) from error
    import scipy.sparse as sp

    nodes, one = len(work), torch.ones(len(row), dtype=torch.int8).numpy()
    matrix = sp.csr_array((one, (row.numpy(), col.numpy())), shape=(nodes, nodes))
    matrix = (matrix + matrix.T).tocsr()
    matrix.setdiag(0)
    matrix.eliminate_zeros()
    adjacency = pymetis.CSRAdjacency(matrix.indptr, matrix.indices)
    _, owner = pymetis.part_graph(
        parts, adjacency, vweights=work.tolist(), options=pymetis.Options(seed=seed)
    )
    return torch.tensor(owner, dtype=torch.int64)
