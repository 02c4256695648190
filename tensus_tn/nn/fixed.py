"""The best meta-graph, or a mixture of the best few, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tensus_tn.dag import Dag, Edge
from tensus_tn.nn.links import useful_links
from tensus_tn.nn.meta_graph import MetaGraph, check_meta_graphs
from tensus_tn.nn.schema import IDENTITY
from tensus_tn.propagation.functional import propagate_dag
from tensus_tn.propagation.graph_part import GraphPart
from tensus_tn.propagation.relation_graph import RelationGraph


class FixedMetaGraphs(nn.Module):
    """Propagation along a few meta-graphs, `y = sum_m pi_m M_m h`, with learned `pi`.

    States that are made alike, within a meta-graph or in several of them, are computed once: the
    meta-graphs are merged into one DAG, whose links may carry more than one relation.

    Args:
        meta_graphs: Their probabilities give the initial `pi`.
        relations: The names of all relations of a graph, in order.
    """

    constant: Tensor
    mixed: Tensor

    def __init__(self, meta_graphs: Sequence[MetaGraph], relations: Sequence[str]) -> None:
        super().__init__()
        check_meta_graphs(meta_graphs, relations)
        self.meta_graphs = tuple(meta_graphs)
        links, sinks = _merge(self.meta_graphs)
        self._computed = f"{links} {sinks}"
        mixture = [] if len(set(sinks)) == 1 else [(state, -1) for state in dict.fromkeys(sinks)]
        self.choices: dict[Edge, Sequence[str]] = {**links, **dict.fromkeys(mixture, (IDENTITY,))}
        self.merged = Dag(self.choices)
        constant = torch.zeros(len(self.choices), len(relations))
        for e, names in enumerate(links.values()):
            for name in names:
                constant[e, relations.index(name)] += 1
        # How much of each pi a weight has: only identities from the meta-graphs' sinks have any.
        mixed = torch.zeros(len(self.choices), len(relations), len(sinks))
        for e, (state, _) in enumerate(mixture, len(links)):
            mixed[e, relations.index(IDENTITY)] = torch.tensor([sink == state for sink in sinks])
        self.register_buffer("constant", constant, persistent=False)
        self.register_buffer("mixed", mixed, persistent=False)
        self.logits = nn.Parameter(torch.empty(len(sinks))) if mixture else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Let `pi` be proportional to the probabilities of the meta-graphs."""
        if self.logits is not None:
            probabilities = torch.tensor([m.probability for m in self.meta_graphs])
            with torch.no_grad():
                self.logits.copy_(probabilities.clamp_min(1e-30).log())

    def get_extra_state(self) -> Tensor:
        """For the `state_dict`: what is computed, as the bytes of a text."""
        return torch.tensor(list(self._computed.encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Refuse the state of other meta-graphs: its weights fit, but would mean something else."""
        if not torch.equal(state.cpu(), self.get_extra_state()):
            theirs = bytes(state.tolist()).decode()
            raise ValueError(
                "the state is of a layer over other meta-graphs: give them to `fix` first; merged "
                f"links and sinks are {theirs} there, {self._computed} here"
            )

    def forward(
        self, h: Tensor, graph: RelationGraph | GraphPart, *, rows: Tensor | None = None
    ) -> Tensor:
        """The state (N, F) of the sink, or its `rows` (B, F), from that of the source, (N, F)."""
        weights = self.constant
        if self.logits is not None:
            weights = weights + self.mixed @ self.logits.softmax(0)
        cores = dict(zip(self.choices, weights[:, :, None, None], strict=True))
        sink = propagate_dag(graph, self.merged, h, cores, choices=self.choices, rows=rows)
        return sink.squeeze(1)


def _merge(
    meta_graphs: Sequence[MetaGraph],
) -> tuple[dict[Edge, list[str]], list[int]]:
    """The relations on the links between numbered states, and the sink of every meta-graph.

    A state is known by what is sent to it: (relation, number of the sending state), in any order.
    One that only an identity is sent to is the sending state itself.
    """
    number: dict[tuple[tuple[str, int], ...], int] = {}
    links: dict[Edge, list[str]] = {}
    sinks = []
    for meta_graph in meta_graphs:
        state = {meta_graph.dag.source: 0}
        for node, edges in useful_links(meta_graph.dag, meta_graph.relations):
            sent = tuple(sorted((meta_graph.relations[e], state[e[0]]) for e in edges))
            if node != meta_graph.dag.sink and len(sent) == 1 and sent[0][0] == IDENTITY:
                state[node] = sent[0][1]
                continue
            if sent not in number:
                number[sent] = len(number) + 1
                for name, tail in sent:
                    links.setdefault((tail, number[sent]), []).append(name)
            state[node] = number[sent]
        sinks.append(state[meta_graph.dag.sink])
    return links, sinks
