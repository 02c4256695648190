"""One meta-graph drawn from a distribution: how it is drawn, weighed and followed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from tensus_tn.dag import Dag, Edge
from tensus_tn.network.tensor import DagTensor
from tensus_tn.nn.links import useful_links
from tensus_tn.propagation.functional import propagate_dag
from tensus_tn.propagation.graph_part import GraphPart, checking
from tensus_tn.propagation.relation_graph import RelationGraph


@dataclass(frozen=True)
class Draw:
    """One relation for each link, drawn from a distribution over meta-graphs.

    Attributes:
        choice: The number of each link's relation, among those that the link may choose.
        ranks: The value of every rank index.
        noise: Gumbel noise for every link, (C_e,); None if the draw was made without it.
        temperature: The temperature of the relaxation that gives the gradient, if there is noise.
    """

    choice: Mapping[Edge, int]
    ranks: tuple[int, ...]
    noise: Mapping[Edge, Tensor] | None = None
    temperature: float = 1.0


@torch.no_grad()
def draw_meta_graph(
    tensor: DagTensor,
    how: Literal["best", "uniform", "gumbel"],
    *,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
) -> Draw:
    """Draw the ranks, which are uniform, then a relation for every link given them.

    `"best"` takes the most probable one, `"uniform"` any; `"gumbel"` is a fair draw.
    """
    ranks = tuple(
        int(torch.randint(size, (), generator=generator)) for size in tensor.structure.ranks
    )
    logs = _log_choices(tensor, ranks)
    if how == "uniform":
        sizes = {edge: len(log) for edge, log in logs.items()}
        choice = {
            edge: int(torch.randint(size, (), generator=generator)) for edge, size in sizes.items()
        }
        return Draw(choice, ranks)
    if how == "best":
        return Draw({edge: int(log.argmax()) for edge, log in logs.items()}, ranks)
    noise = {
        edge: -torch.empty_like(log, device="cpu").exponential_(generator=generator).log()
        for edge, log in logs.items()
    }
    noise = {edge: values.to(logs[edge].device) for edge, values in noise.items()}
    choice = {edge: int((log + noise[edge]).argmax()) for edge, log in logs.items()}
    return Draw(choice, ranks, noise, temperature)


def follow_draw(
    tensor: DagTensor,
    draw: Draw,
    h: Tensor,
    graph: RelationGraph | GraphPart,
    rows: Tensor | None = None,
) -> Tensor:
    """The state (N, F) of the sink, or its `rows`, along the relations drawn, with their weights."""
    with checking(graph):
        _check_draw(tensor, draw)
    relations = {edge: tensor.choice_names[edge][i] for edge, i in draw.choice.items()}
    return follow(graph, tensor.dag, h, relations, _weights(tensor, draw), rows)


def follow(
    graph: RelationGraph | GraphPart,
    dag: Dag,
    h: Tensor,
    relations: Mapping[Edge, str],
    weights: Mapping[Edge, Tensor],
    rows: Tensor | None = None,
) -> Tensor:
    """The state (N, F) of the sink: `H_k = sum_{j -> k} w_jk A^(i_jk) H_j`, with `H_0 = h` (N, F).

    It is differentiable in `h` and the scalar weights. Links of relation zero are left out. With
    `rows` only these are computed, (B, F).
    """
    edges = [edge for _, links in useful_links(dag, relations) for edge in links]
    if not edges:
        nothing = torch.zeros_like(h) if rows is None else h.new_zeros(len(rows), h.shape[1])
        return nothing + _nothing_of(h, *weights.values())
    with checking(graph):
        chosen = [graph.relation_index(relations[edge]) for edge in edges]
    one_hot = F.one_hot(torch.tensor(chosen, device=h.device), graph.num_relations)
    cores = one_hot * torch.stack([weights[edge] for edge in edges])[:, None]
    cores = cores + _nothing_of(*weights.values())
    return propagate_dag(
        graph,
        Dag(edges),
        h,
        dict(zip(edges, cores[:, :, None, None], strict=True)),
        choices={edge: [relations[edge]] for edge in edges},
        rows=rows,
    ).squeeze(1)


def _nothing_of(*tensors: Tensor) -> Tensor | float:
    """Zero, with a gradient of zero for all of these: but only where processes train together.

    They wait for the gradient of every parameter. Alone, an optimizer leaves out what has none.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return 0.0
    return torch.cat([tensor.flatten()[:0] for tensor in tensors]).sum()


def check_sampling(epsilon: float | None, temperature: float) -> None:
    """Check how draws are to be made, as `MetaGraphConv.sample` describes it."""
    if epsilon is not None and not 0 <= epsilon <= 1:
        raise ValueError(f"epsilon must be in [0, 1], got {epsilon}")
    if not temperature > 0:
        raise ValueError(f"temperature must be positive, got {temperature}")


def _log_choices(tensor: DagTensor, ranks: Sequence[int]) -> dict[Edge, Tensor]:
    """The log-probabilities (C_e,) of every link's choices, given the ranks."""
    at = [tuple(0 if r is None else ranks[r] for r in ends) for ends in tensor.structure.ends]
    cores = zip(tensor.dag.edges, map(_unsharded, tensor.parameters()), at, strict=True)
    return {edge: core[:, p, q].log_softmax(0) for edge, core, (p, q) in cores}


def _unsharded(core: Tensor) -> Tensor:
    """A core that FSDP has spread over the processes, whole on each of them: they draw together."""
    whole: Tensor = core.full_tensor() if hasattr(core, "full_tensor") else core  # of a DTensor
    return whole


def _weights(tensor: DagTensor, draw: Draw) -> dict[Edge, Tensor]:
    """The weight of every link's choice, which carries the gradient to the cores.

    It is the choice's probability, as in DiffMG; for a draw with noise it is 1, and its
    gradient that of the choice's probability under the relaxation.
    """
    logs = _log_choices(tensor, draw.ranks)
    if draw.noise is None:
        return {edge: log[draw.choice[edge]].exp() for edge, log in logs.items()}
    weights = {}
    for edge, log in logs.items():
        soft = ((log + draw.noise[edge]) / draw.temperature).softmax(0)[draw.choice[edge]]
        weights[edge] = 1 + soft - soft.detach()
    return weights


def _check_draw(tensor: DagTensor, draw: Draw) -> None:
    """Check that the draw is of this distribution, or of one with the same links and sizes."""
    sizes = {edge: len(names) for edge, names in tensor.choice_names.items()}
    if draw.choice.keys() != sizes.keys():
        raise ValueError(f"a draw for the links {list(draw.choice)}, not {list(sizes)}")
    ranks = tensor.structure.ranks
    if any(not 0 <= i < sizes[edge] for edge, i in draw.choice.items()) or (
        len(draw.ranks) != len(ranks)
        or any(not 0 <= r < size for r, size in zip(draw.ranks, ranks, strict=True))
    ):
        raise ValueError(
            f"a draw with choices {dict(draw.choice)} and ranks {draw.ranks} does not fit: "
            f"there are {sizes} choices, and the ranks are below {tuple(ranks)}"
        )
