"""RuleModel: one tensor network for each relation of a knowledge graph, learned together."""

from __future__ import annotations

import os
from collections.abc import Iterable
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tensus_tn._arguments import check_memory, check_size
from tensus_tn.dag import Dag, Edge
from tensus_tn.network.structure import Rank, Ties, make_structure
from tensus_tn.network.tensor import DagTensor
from tensus_tn.rules import defaults
from tensus_tn.rules.frontier import Walker
from tensus_tn.rules.knowledge_graph import KnowledgeGraph, as_triples
from tensus_tn.rules.ranking import Ranking, check_ties
from tensus_tn.rules.ranking import Ties as RankTies
from tensus_tn.rules.walks import (
    KnownAnswers,
    Queries,
    Scaling,
    WalkGraph,
    both_ways,
    make_queries,
    walk_graph,
)

Weights = Literal["signed", "softmax"]
Query = tuple["str | int", "str | int"]

FLOOR = 1e-4  # what softmax weights give to an entity that is not reached


class RuleModel(nn.Module):
    r"""Scores of entities by weighted walks: rules that are learned together, for every relation.

    For a query `(relation r, start s)` the state of the DAG's source is one-hot at `s`, and

        H_k[:, q] = sum over links (j, k), operators i, p of W^r_jk(i, p, q) A^i H_j[:, p]

    with every relation, its inverse and the identity as operators `A^i`. An entity's score is its entry
    in the sink, plus what its popularity as an answer of `r` counts. Each `r` has cores of its own:
    one `DagTensor`, whose entries are the weights of rules `r(x, y) <- a(x, z), b(z, y)`.

    Args:
        graph: Its training triples are walked on.
        steps: The length of the path, where no `dag` is given. As many as pay when None: see
            `tensus_tn.rules.defaults`.
        rank: Of the inner nodes. 1 weighs the steps of a rule independently (as Neural-LP does).
        dag: The topology; a path by default.
        ties: `"node"`, a rank index for each inner node (a tensor train on a path), or `"global"`, one
            for all of them (CP; on a path, DRUM's form).
        weights: `"signed"`, or `"softmax"`: each core sums to one over the operators.
        popularity: Add `b_r log(1 + n)` to the score of an entity that is the answer of `n` training
            triples of `r`, `b_r` learned: the rule `r(x, y) <- r(z, y)`. With signed weights only.
        scaling: Of walks through hubs, see `walk_graph`.
        init_scale: The standard deviation of the initial cores.
        seed: Of the initial cores.
        dtype: Of the cores.

    Example:
        >>> triples = [(f"c{k}", "child", f"p{k}") for k in range(9)]
        >>> triples += [(f"p{k}", "parent", f"c{k}") for k in range(8)]
        >>> graph = KnowledgeGraph.from_triples(triples, test=[("p8", "parent", "c8")])
        >>> model = RuleModel(graph, steps=1, rank=1)
        >>> report = model.fit(epochs=30, progress=False)
        >>> model.rank(graph.test).metrics("pessimistic")["hits@1"]
        1.0
        >>> print(model.rules("parent", 1)[0])
        parent(x, y) <- child(y, x)
    """

    def __init__(
        self,
        graph: KnowledgeGraph,
        steps: int | None = None,
        rank: Rank = 4,
        *,
        dag: Dag | None = None,
        ties: Ties = "node",
        weights: Weights = "signed",
        popularity: bool = True,
        scaling: Scaling = "both",
        init_scale: float = 0.3,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        if not isinstance(graph, KnowledgeGraph):
            raise TypeError(f"graph must be a KnowledgeGraph, got {type(graph).__name__}")
        if weights not in ("signed", "softmax"):
            raise ValueError(f"weights must be 'signed' or 'softmax', got {weights!r}")
        if dtype not in (torch.float32, torch.float64):
            raise TypeError(f"dtype must be float32 or float64, got {dtype}")
        if dag is not None and steps is not None:
            raise ValueError("give steps, the length of a path, or a dag, not both")
        if steps is not None:
            check_size("steps", steps)
        self.graph, self.weight_kind, self.scaling = graph, weights, scaling
        self.walks = walk_graph(graph, scaling, dtype)
        if dag is None:
            dag = Dag.path(defaults.steps(self.walks) if steps is None else steps)
        C, R2 = self.walks.num_operators, 2 * graph.num_relations
        choices = dict.fromkeys(dag.edges, C)
        self.structure = make_structure(dag, choices, rank, ties, weights == "softmax")
        shapes = [(R2, *self.structure.core_shape(e)) for e in range(len(dag.edges))]
        check_memory("parameters", sum(map(prod, shapes)), dtype)
        generator = torch.Generator().manual_seed(seed)
        scale = init_scale if weights == "signed" else 1.0
        for e, shape in enumerate(shapes):
            core = scale * torch.randn(shape, generator=generator, dtype=dtype)
            self.register_parameter(f"core_{e}", nn.Parameter(core))
        counts = popularity and weights == "signed"
        self.popularity = nn.Parameter(torch.zeros(R2, dtype=dtype)) if counts else None
        self.width = defaults.width(self.walker(), self.weights())

    @property
    def dag(self) -> Dag:
        """The topology."""
        return self.structure.dag

    @property
    def operators(self) -> tuple[str, ...]:
        """The names of the choices of every link: relations, inverses (`r^-1`) and the identity."""
        names = self.graph.relations
        return (*names, *(f"{name}^-1" for name in names), "identity")

    @property
    def num_parameters(self) -> int:
        """Of all relations."""
        return sum(parameter.numel() for parameter in self.parameters())

    def weights(self) -> dict[Edge, Tensor]:
        """What walks are weighted by: (2R, C, d_j, d_k) for every link, differentiable."""
        return {
            edge: self._weight(e, self._parameters[f"core_{e}"])  # type: ignore[arg-type]
            for e, edge in enumerate(self.dag.edges)
        }

    def _weight(self, e: int, core: Tensor) -> Tensor:
        tail, head = self.structure.ends[e]
        # Where a link's ends share one rank index, its core is the diagonal of a matrix.
        shared = tail is not None and head is None and self.dag.edges[e][1] != self.dag.sink
        if self.structure.normalized:
            core = core.softmax(1)
            if tail is not None and not shared:
                core = core / self.structure.ranks[tail]
        return core.mT.diag_embed().squeeze(2) if shared else core

    def _ranks(self) -> list[int]:
        """The rank of every node."""
        ends = {self.dag.source, self.dag.sink}
        number = {v: k for k, v in enumerate(self.dag.inner)}
        shared = len(self.structure.ranks) < len(number)
        return [
            1 if v in ends else self.structure.ranks[0 if shared else number[v]]
            for v in self.dag.nodes
        ]

    def walker(self, walks: WalkGraph | None = None, width: int = 1) -> Walker:
        """Walks along the DAG over this graph, or over another one."""
        return Walker(walks or self.walks, self.dag, self._ranks(), width)

    def loss(self, queries: Queries) -> Tensor:
        """The mean cross-entropy of the answers among all entities but other known answers."""
        floor = None if self.weight_kind == "signed" else FLOOR
        walker = self.walker(width=self.width)
        return walker.loss(self.weights(), self.popularity, queries, floor=floor)

    def tensor(self, relation: str | int, *, inverse: bool = False) -> DagTensor:
        """The tensor of one relation, a copy: its entries are the weights of rules.

        Args:
            relation: Its name or id.
            inverse: The tensor of queries for the head, instead of those for the tail.

        Example:
            >>> graph = KnowledgeGraph.from_triples([("a", "r", "b"), ("b", "s", "c")])
            >>> RuleModel(graph, steps=2).tensor("r").shape
            torch.Size([5, 5])
        """
        r = self.graph.relation(relation) + inverse * self.graph.num_relations
        ranks: Any = dict(zip(self.dag.nodes, self._ranks(), strict=True))
        tensor = DagTensor(
            self.dag,
            list(self.operators),
            {v: ranks[v] for v in self.dag.inner} or 1,
            parametrization="softmax" if self.structure.normalized else "free",
            ties="global" if len(self.structure.ranks) < len(self.dag.inner) else "node",
            dtype=self._parameters["core_0"].dtype,  # type: ignore[union-attr]
        )
        with torch.no_grad():
            for copy, core in zip(tensor.parameters(), self._cores(), strict=True):
                copy.copy_(core[r])
        return tensor

    def _cores(self) -> list[Tensor]:
        return [self._parameters[f"core_{e}"] for e in range(len(self.dag.edges))]  # type: ignore[misc]

    @torch.no_grad()
    def scores(
        self, queries: Iterable[Query] | Tensor, *, graph: KnowledgeGraph | None = None
    ) -> Tensor:
        """The scores of all entities, (Q, N), for queries `(relation, start)`.

        Args:
            queries: Pairs of names or ids; or a tensor (Q, 2) of ids, where a relation from `R` on
                asks for the head.
            graph: Another graph to walk on, with other entities: rules hold no entity. It must have
                the relations of the model's graph, by name and in their order; see
                `KnowledgeGraph.with_relations`.

        Example:
            >>> graph = KnowledgeGraph.from_triples([("a", "r", "b"), ("b", "s", "c")])
            >>> RuleModel(graph, steps=2).scores([("r", "a")]).shape
            torch.Size([1, 3])
        """
        on = self._graph(graph)
        asked = _as_queries(queries, on)
        order = asked[:, 0].argsort(stable=True)
        asked = asked[order]
        none = KnownAnswers(on.train[:0], on.num_relations, on.num_entities)
        rows = torch.cat([asked, asked[:, 1:]], dim=1)  # any answer will do
        walker = self.walker(self._walks(graph), self.width)
        found = walker.scores(self.weights(), self.popularity, make_queries(rows, none))
        return torch.empty_like(found).index_copy_(0, order.to(found.device), found)

    @torch.no_grad()
    def rank(
        self,
        triples: Tensor | None = None,
        *,
        ties: RankTies = "random",
        filter: Tensor | None = None,
        graph: KnowledgeGraph | None = None,
        seed: int = 0,
    ) -> Ranking:
        """Rank the answers of triples, asked from both ends, among all entities.

        Args:
            triples: (n, 3); those of the graph's test split when None.
            ties: Where the answer stands among entities with its score; the report has all four.
            filter: Triples whose answers do not compete; all known ones of the graph when None.
            graph: Another graph to walk on; see `scores`.
            seed: Of random ties.
        """
        check_ties(ties)
        on = self._graph(graph)
        triples = as_triples(on.test if triples is None else triples, on)
        filter = on.known if filter is None else as_triples(filter, on)
        known = KnownAnswers(torch.cat([filter, triples]), on.num_relations, on.num_entities)
        asked = both_ways(triples, on.num_relations)
        order = asked[:, 0].argsort(stable=True)
        queries = make_queries(asked[order], known)
        walker = self.walker(self._walks(graph), self.width)
        higher, equal = walker.ranks_of(self.weights(), self.popularity, queries)
        return Ranking(queries.relation, higher.cpu(), equal.cpu(), on.relations, ties, seed)

    def fit(self, train: Any = None, valid: Any = None, **settings: Any) -> Any:
        """Learn the cores from training triples, and keep those that rank validation triples best.

        Args:
            train: Triples of the graph that are asked for, by ids (n, 3) or by names; all of its
                training triples when None. The edge of the triple that is asked for is taken out of
                the graph.
            valid: Those to keep the best epoch by and to stop early; the graph's when None.
            settings: See `tensus_tn.rules.Settings`.

        Returns:
            A `tensus_tn.rules.FitReport`.
        """
        from tensus_tn.rules.training import fit

        return fit(self, train, valid, **settings)

    def rules(self, relation: str | int, k: int = 10, **options: Any) -> list[Any]:
        """The rules of a relation, with their confidence counted on the graph; see `mine`."""
        from tensus_tn.rules.mining import mine

        return mine(self, relation, k, **options)

    def explain(self, relation: str | int, start: str | int, answer: str | int, k: int = 10) -> Any:
        """Which rules give what part of a score, and through which entities; see `explain`."""
        from tensus_tn.rules.explain import explain

        return explain(self, relation, start, answer, k)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file; `RuleModel.load` reads it."""
        from tensus_tn.rules.training import write_model

        write_model(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], graph: KnowledgeGraph) -> RuleModel:
        """A model from a file, on the graph that it was made for, or one with its relations."""
        from tensus_tn.rules.training import read_model

        return read_model(path, graph)

    def _graph(self, other: KnowledgeGraph | None) -> KnowledgeGraph:
        if other is None:
            return self.graph
        if other.relations != self.graph.relations:
            raise ValueError(
                f"the other graph must have the relations of the model, {self.graph.relations[:5]}"
                f"..., in this order, got {other.relations[:5]}...: use its with_relations"
            )
        return other

    def _walks(self, other: KnowledgeGraph | None) -> WalkGraph:
        if other is None or other is self.graph:
            return self.walks
        return walk_graph(other, self.scaling, self.walks.edges.value.dtype)

    def extra_repr(self) -> str:
        """What `repr` shows."""
        ranks = sorted(set(self.structure.ranks)) or [1]
        return (
            f"{self.graph!r}, dag={self.dag}, rank={ranks[0] if len(ranks) == 1 else ranks}, "
            f"weights={self.weight_kind!r}"
        )


def _as_queries(queries: Iterable[Query] | Tensor, graph: KnowledgeGraph) -> Tensor:
    """Queries (Q, 2) of ids, given as ids or names."""
    if not isinstance(queries, Tensor):
        rows = [(graph.relation(r), graph.entity(s)) for r, s in queries]
        return torch.tensor(rows, dtype=torch.long).reshape(-1, 2)
    sizes = torch.tensor([2 * graph.num_relations, graph.num_entities])
    if queries.ndim != 2 or queries.shape[1] != 2:
        raise ValueError(f"expected queries (Q, 2), got {tuple(queries.shape)}")
    if queries.is_floating_point() or queries.is_complex() or queries.dtype == torch.bool:
        raise TypeError(f"expected queries of integers, got {queries.dtype}")
    if len(queries) and not bool(((queries >= 0) & (queries < sizes)).all()):
        raise ValueError(f"expected queries (relation, start) below {sizes.tolist()}")
    return queries.long()
