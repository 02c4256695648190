"""The mathematics of a meta-graph layer: a DagTensor's cores as the weights of a propagation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from tensus_tn.dag import Dag, Edge
from tensus_tn.network.structure import Rank, Structure, Ties
from tensus_tn.network.tensor import DagTensor
from tensus_tn.nn.drawn import Draw, draw_meta_graph, follow_draw
from tensus_tn.propagation.functional import propagate_dag
from tensus_tn.propagation.graph_part import GraphPart
from tensus_tn.propagation.relation_graph import RelationGraph


class MetaGraphSearch(nn.Module):
    """A distribution over meta-graphs, and the expected propagation along them.

    Link `(j, k)` chooses among some of the graph's relations; the tensor `T` is the joint
    distribution of all choices. With states `H_k` of shape (N, d_k, F):

        H_k[:, q] = sum_{j -> k} 1/d_j sum_p sum_i W_jk(i, p, q) A^i H_j[:, p]

    Because the propagation is linear in every link, this is the mean over `T` of what the single
    meta-graphs compute.

    Args:
        dag: Its nodes are states, its edges links.
        choices: The names of the relations that each link may choose.
        relations: The names of all relations of a graph, in order.
        rank: The rank of the inner states.
        ties: `"node"`: a rank index for each state (TENSUS); `"global"`: one for all (CP).
        init_scale: The standard deviation of the initial logits.

    Example:
        >>> dag, relations = Dag.path(2), ("A", "identity")
        >>> graph = RelationGraph.from_edge_index({"A": torch.tensor([[0], [1]])}, 3, identity=True)
        >>> search = MetaGraphSearch(dag, dict.fromkeys(dag.edges, relations), relations, rank=2)
        >>> search(torch.randn(3, 4), graph).shape
        torch.Size([3, 4])
        >>> cores = {edge: torch.stack([core] * 5) for edge, core in search.tensor.cores().items()}
        >>> search.per_query(torch.randn(3, 4), graph, cores).shape  # another tensor for each query
        torch.Size([5, 3, 4])
    """

    index: Tensor
    divisor: Tensor

    def __init__(
        self,
        dag: Dag,
        choices: Mapping[Edge, Sequence[str]],
        relations: Sequence[str],
        rank: Rank = 1,
        *,
        ties: Ties = "node",
        init_scale: float = 0.1,
    ) -> None:
        super().__init__()
        _check_choices(dag, choices, relations)
        self.tensor = DagTensor(dag, choices, rank, ties=ties, init_scale=init_scale)
        links = {edge: [relations.index(name) for name in choices[edge]] for edge in dag.edges}
        index, divisor, self._shapes = _layout(self.tensor.structure, links, len(relations))
        self.register_buffer("index", index, persistent=False)
        self.register_buffer("divisor", divisor, persistent=False)  # exact in every dtype

    @property
    def dag(self) -> Dag:
        """The states and their links."""
        return self.tensor.dag

    def weights(self, cores: Mapping[Edge, Tensor] | None = None) -> dict[Edge, Tensor]:
        """Cores (..., C_e, d_j, d_k) as weights (..., C, d_j, d_k) over all relations.

        They include the factor `1 / d_j`. The cores are those of `tensor` unless given.
        """
        cores = self.tensor.cores() if cores is None else cores
        edges = self.dag.edges
        flat = [cores[edge].flatten(-3) for edge in edges]
        flat.append(flat[0].new_zeros(*flat[0].shape[:-1], 1))  # for what a link may not choose
        weights = torch.cat(flat, -1).index_select(-1, self.index) / self.divisor
        sizes = [c * p * q for c, p, q in self._shapes]
        parts = zip(edges, weights.split(sizes, -1), self._shapes, strict=True)
        return {edge: part.unflatten(-1, shape) for edge, part, shape in parts}

    def sample(
        self,
        how: Literal["best", "uniform", "gumbel"],
        *,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> Draw:
        """Draw the ranks, which are uniform, then a relation for every link given them.

        `"best"` takes the most probable one, `"uniform"` any; `"gumbel"` is a fair draw.
        """
        return draw_meta_graph(self.tensor, how, temperature=temperature, generator=generator)

    def forward(
        self,
        h: Tensor,
        graph: RelationGraph | GraphPart,
        draw: Draw | None = None,
        *,
        rows: Tensor | None = None,
    ) -> Tensor:
        """The state (N, F) of the sink, or its `rows` (B, F), from that of the source, (N, F).

        With a draw, only the relations drawn are followed.
        """
        if draw is not None:
            return follow_draw(self.tensor, draw, h, graph, rows)
        return self._expected(h, graph, self.weights(), rows)

    def per_query(
        self, h: Tensor, graph: RelationGraph | GraphPart, cores: Mapping[Edge, Tensor]
    ) -> Tensor:
        """The states (Q, N, F) of the sink for cores (Q, C_e, d_j, d_k) of `Q` queries.

        The cores take the place of the tensor's own, and must be normalised like them. `h` is
        (N, F), the same for all queries, or (Q, N, F).
        """
        num = len(cores[self.dag.edges[0]])
        states = h if h.ndim == 3 else h.expand(num, *h.shape)
        if len(states) != num:
            raise ValueError(f"cores are for {num} queries, h for {len(states)}")
        return torch.stack(self.side_by_side(states.unbind(), graph, cores))

    def side_by_side(
        self,
        h: Sequence[Tensor],
        graph: RelationGraph | GraphPart,
        cores: Mapping[Edge, Tensor],
        rows: Tensor | None = None,
    ) -> list[Tensor]:
        """The states (N, F_g) of the sink from several of the source, in one pass over the graph.

        Each has cores of its own, (G, C_e, d_j, d_k) for all `G`, as in `per_query`.
        """
        sizes = [x.shape[1] for x in h]
        groups = [g for g, size in enumerate(sizes) for _ in range(size)]
        sink = self._expected(torch.cat(list(h), 1), graph, self.weights(cores), rows, groups)
        return list(sink.split(sizes, 1))

    def _expected(
        self,
        h: Tensor,
        graph: RelationGraph | GraphPart,
        weights: Mapping[Edge, Tensor],
        rows: Tensor | None = None,
        groups: Sequence[int] | None = None,
    ) -> Tensor:
        choices = self.tensor.choice_names
        return propagate_dag(
            graph, self.dag, h, weights, choices=choices, rows=rows, groups=groups
        ).squeeze(1)


def propagate_heads(
    heads: Sequence[MetaGraphSearch],
    h: Sequence[Tensor],
    graph: RelationGraph | GraphPart,
    rows: Tensor | None = None,
) -> list[Tensor]:
    """What each head makes of its own state, by one pass for all; they differ in their cores alone."""
    first, *others = heads
    if not others:
        return [first(h[0], graph, rows=rows)]
    cores = [head.tensor.cores() for head in heads]
    together = {edge: torch.stack([core[edge] for core in cores]) for edge in first.dag.edges}
    return first.side_by_side(h, graph, together, rows)


def _check_choices(
    dag: Dag, choices: Mapping[Edge, Sequence[str]], relations: Sequence[str]
) -> None:
    for edge in dag.edges:
        if not choices.get(edge):
            raise ValueError(f"link {edge!r} has no relation to choose from")
        if unknown := [name for name in choices[edge] if name not in relations]:
            raise ValueError(f"link {edge!r}: {unknown} are not among {list(relations)}")


def _layout(
    structure: Structure, links: Mapping[Edge, Sequence[int]], num_relations: int
) -> tuple[Tensor, Tensor, list[tuple[int, int, int]]]:
    """Where each weight `(C, d_j, d_k)` of each link stands among all cores, and its divisor.

    What a link may not choose is taken from the place after the last core, which holds zero. Where
    all states share one rank index, a link between inner states is diagonal in it, and the mean
    over it is taken once, by the links into the sink.
    """
    dag = structure.dag
    shared = len(structure.ranks) < len(dag.inner)
    total = sum(c * p * q for c, p, q in map(structure.core_shape, range(len(dag.edges))))
    indices, divisors, shapes, offset = [], [], [], 0
    for e, (tail, head) in enumerate(dag.edges):
        core_shape = structure.core_shape(e)
        size = core_shape[0] * core_shape[1] * core_shape[2]
        place = torch.arange(offset, offset + size).reshape(core_shape)
        offset += size
        diagonal = shared and tail != dag.source and head != dag.sink
        if diagonal:
            place = torch.where(torch.eye(core_shape[1], dtype=torch.bool), place, total)
        shape = (num_relations, place.shape[1], place.shape[2])
        index = torch.full(shape, total)
        index[list(links[tail, head])] = place
        indices.append(index.flatten())
        divisor = 1.0 if diagonal else float(core_shape[1])
        divisors.append(torch.full((index.numel(),), divisor))
        shapes.append(shape)
    return torch.cat(indices), torch.cat(divisors), shapes
