"""The example of ``make demo``: learn which meta-graphs made the data, at rank 1 and at rank 2.

Half of the samples take one meta-graph, half another, and a few choices are noise. What matters is
which choices come together, and that is what a rank-one tensor (DiffMG, GTN) cannot hold: it gives
the mixed pairs, which hardly occur, as much weight as the planted ones.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tensus_tn import Dag, DagTensor, RelationGraph, fit_em, propagate_dag, show_config
from tensus_tn.relations import RelationKey

RELATIONS = ["AP", "PA", "PC", "CP"]
DAG = Dag([("H0", "H1"), ("H1", "H2"), ("H0", "H2")])
PLANTED = torch.tensor(
    [[1, 0, 2], [2, 3, 2]]
)  # PA then AP, or PC then CP; beside both a link by PC


def planted_samples(num: int, generator: torch.Generator) -> Tensor:
    """Draw ``(num, 3)`` choices: one of the planted meta-graphs, every tenth choice at random."""
    samples = PLANTED[torch.randint(2, (num,), generator=generator)]
    noise = torch.randint(len(RELATIONS), samples.shape, generator=generator)
    return torch.where(torch.rand(samples.shape, generator=generator) < 0.1, noise, samples)


def show_meta_graphs(tensor: DagTensor, num: int) -> None:
    """Print the most probable meta-graphs of a tensor."""
    best = tensor.top_k(num)
    for index, value in zip(best.index.tolist(), best.value.tolist(), strict=True):
        print(f"    {value:6.1%}   {as_text(index)}")


def as_text(index: list[int]) -> str:
    """A meta-graph as text: every edge with its relation."""
    edges = zip(DAG.edges, index, strict=True)
    return "   ".join(f"{tail} -{RELATIONS[choice]}-> {head}" for (tail, head), choice in edges)


def random_graph(num_nodes: int, generator: torch.Generator) -> RelationGraph:
    """A graph with four edges a node in every relation."""
    ends = torch.randint(num_nodes, (len(RELATIONS), 2, 4 * num_nodes), generator=generator)
    edges: dict[RelationKey, Tensor] = dict(zip(RELATIONS, ends, strict=True))
    return RelationGraph.from_edge_index(edges, num_nodes, normalize="row")


def main() -> None:
    """Run the example and print what it finds."""
    generator = torch.Generator().manual_seed(0)
    samples = planted_samples(5000, generator)
    print(f"{len(samples)} samples of a meta-graph over {DAG}\nplanted, half each:")
    for index in PLANTED.tolist():
        print(f"             {as_text(index)}")
    for rank in (1, 2):
        start = DagTensor(DAG, RELATIONS, rank, generator=generator)
        learned, report = fit_em(samples, start)
        print(f"\nrank {rank}: {report}; the most probable meta-graphs:")
        show_meta_graphs(learned, 3)

    graph = random_graph(2000, generator)
    features = torch.randn(2000, 64, generator=generator)
    with torch.no_grad():
        weights = {edge: core / core.shape[1] for edge, core in learned.cores().items()}
        state = propagate_dag(graph, DAG, features, weights)
    print(f"\npropagated {tuple(features.shape)} features over {graph}")
    print(f"with the learned weights of all relations: {tuple(state.shape)}\n")
    show_config()


if __name__ == "__main__":
    main()
