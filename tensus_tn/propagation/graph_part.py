"""What `propagate` and the layers take in place of a `RelationGraph`: some rows of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from tensus_tn.propagation.node_ids import RelationKey, relation_name, type_slices


class GraphPart(ABC):
    """Some rows of a graph, whose states are computed together with those who have the others.

    `DistributedGraph` is one: processes have the rows. Features and results are those of the rows
    here, in the order of their nodes.

    Attributes:
        relation_names: The relations, the same for all parts.
        node_counts: How many rows of each node type there are here.
    """

    relation_names: tuple[str, ...]
    node_counts: tuple[tuple[str, int], ...]

    @property
    def num_nodes(self) -> int:
        """The rows that are here, over all node types."""
        return sum(count for _, count in self.node_counts)

    @property
    def num_relations(self) -> int:
        """`C`, with the identity and the zero relation."""
        return len(self.relation_names)

    @property
    def node_types(self) -> dict[str, slice]:
        """Which of the rows here belong to each node type."""
        return type_slices(dict(self.node_counts))

    def relation_index(self, relation: RelationKey) -> int:
        """The position of a relation, given by its name or its edge type."""
        name = relation_name(relation)
        if name not in self.relation_names:
            raise ValueError(f"no relation {name!r} among {list(self.relation_names)}")
        return self.relation_names.index(name)

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where all tensors are."""

    def checking(self) -> AbstractContextManager[None]:
        """While the arguments of `states` are made: those who have other rows are told of mistakes."""
        return nullcontext()

    def agree(self, settings: Mapping[str, object]) -> None:
        """Those who have other rows call this too: an error on all where settings differ."""
        return

    @abstractmethod
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
        """The states 1 .. K at the rows here, given that of the source; see `csrc/library.cpp`.

        With `rows`, ids (B,), the sink at these alone, and of other states what they need. With a
        `support`, ids too, other rows of the source count as zero, and of the states between it and
        the sink there is only what it can reach.
        """


def checking(graph: object) -> AbstractContextManager[None]:
    """While arguments are checked: of a part of a graph, see `GraphPart.checking`."""
    return graph.checking() if isinstance(graph, GraphPart) else nullcontext()
