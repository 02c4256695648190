"""Random networks, and the definition of their tensor written out as a sum over ranks."""

import random
from itertools import product

import torch

from tensus_tn import Dag, DagTensor


def random_dag(rng: random.Random, max_nodes: int = 7, max_edges: int = 8) -> Dag:
    while True:
        n = rng.randint(2, max_nodes)
        density = rng.uniform(0.3, 1.0)
        edges = [(i, j) for i in range(n) for j in range(i + 1, n) if rng.random() < density]
        rng.shuffle(edges)
        try:
            if len(edges) <= max_edges:
                return Dag(edges)
        except ValueError:
            continue


def random_tensor(
    rng: random.Random,
    parametrization: str,
    dtype: torch.dtype = torch.float64,
    ties: str | None = None,
    **limits: int,
) -> DagTensor:
    dag = random_dag(rng, **limits)
    ties = ties or rng.choice(["node", "node", "global"])
    rank = rng.randint(1, 3)
    return DagTensor(
        dag,
        choices={edge: rng.randint(1, 3) for edge in dag.edges},
        rank=rank if ties == "global" else {node: rng.randint(1, 3) for node in dag.inner},
        parametrization=parametrization,
        ties=ties,
        dtype=dtype,
        generator=torch.Generator().manual_seed(rng.randint(0, 2**30)),
    )


def brute_force(tensor: DagTensor, *, differentiable: bool = False) -> torch.Tensor:
    """`T(i) = 1/Z sum_r prod_e W_e(i_e, r_j, r_k)`, term by term, in float64."""
    with torch.set_grad_enabled(differentiable):
        return _sum_over_ranks(tensor)


def _sum_over_ranks(tensor: DagTensor) -> torch.Tensor:
    cores = {edge: core.double() for edge, core in tensor.cores().items()}
    dag, is_global = tensor.dag, tensor.ties == "global"
    ranks = dict(
        zip(dag.inner, tensor.structure.ranks * (len(dag.inner) if is_global else 1), strict=True)
    )
    states = [range(tensor.structure.ranks[0])] if is_global else [range(d) for d in ranks.values()]
    total = torch.zeros(tensor.shape, dtype=torch.float64)
    for state in product(*states):
        r = (
            dict.fromkeys(dag.inner, state[0])
            if is_global
            else dict(zip(dag.inner, state, strict=True))
        )
        term = torch.ones((), dtype=torch.float64)
        for (tail, head), core in cores.items():
            a = r.get(tail, 0)
            # With one index for all nodes a core between two of them has it once, as its tail's.
            b = 0 if is_global and tail in r else r.get(head, 0)
            term = term.unsqueeze(-1) * core[:, a, b]
        total += term
    normalizer = len(list(product(*states))) if tensor.parametrization == "softmax" else 1
    return total / normalizer


def operands(tensor: DagTensor, *, log: bool = False) -> list[torch.Tensor]:
    """The cores without the ends that have no rank, or their logarithms, detached."""
    cores = [core.detach() for core in tensor.cores().values()]
    shapes = tensor.structure.operand_shapes
    cores = [core.reshape(shape) for core, shape in zip(cores, shapes, strict=True)]
    return [core.log() for core in cores] if log else cores


def random_index(shape, num: int) -> torch.Tensor:
    return torch.stack([torch.randint(size, (num,)) for size in shape], dim=1)


def random_contraction(rng):
    """Operands with any number of shared indices: hyperedges, scalars, repeated operands."""
    sizes = tuple(rng.randint(1, 4) for _ in range(rng.randint(1, 6)))
    indices = range(len(sizes))
    inputs = [
        tuple(rng.sample(indices, rng.randint(0, len(sizes)))) for _ in range(rng.randint(1, 6))
    ]
    used = sorted({i for term in inputs for i in term})
    output = tuple(rng.sample(used, rng.randint(0, len(used))))
    operands = [torch.rand([sizes[i] for i in term], dtype=torch.float64) for term in inputs]
    return inputs, output, sizes, operands


def einsum(inputs, output, operands):
    terms = ["".join(chr(97 + i) for i in term) for term in (*inputs, output)]
    return torch.einsum(f"{','.join(terms[:-1])}->{terms[-1]}", *operands)


def complete_contraction(last, size):
    dag = Dag.complete(last)
    number = {node: k for k, node in enumerate(dag.inner)}
    return [tuple(number[v] for v in edge if v in number) for edge in dag.edges], [size] * len(
        number
    )
