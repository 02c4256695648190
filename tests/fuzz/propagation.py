"""Random graphs, DAGs, sizes, types and layouts: values and derivatives against the dense formula."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from tensus_tn import Dag, RelationGraph
from tensus_tn.dag import Edge
from tensus_tn.propagation.functional import propagate_dag
from tests.network.networks import random_dag

#: Relative to the same sum over absolute values.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 3e-2}


def check(rng: random.Random) -> None:
    problem = random_problem(rng)
    compare_derivatives(rng, problem, rng.choice([1, 1, 2, 3]))
    if rng.random() < 0.2:
        compare_tangents(problem)
    if problem.rows is not None and problem.dtype != torch.bfloat16:
        compare_bits(problem)


@dataclass
class Problem:
    """What is propagated; functions of it take the features, the edge values and the weights."""

    graph: RelationGraph
    loops: Tensor
    dag: Dag
    choices: dict | None
    rows: Tensor | None  # None: the states of all nodes are wanted
    support: Tensor | None
    planned: bool
    inputs: list[Tensor]

    @property
    def dtype(self) -> torch.dtype:
        return self.inputs[0].dtype

    def states(self, h: Tensor, values: Tensor, *weights: Tensor) -> list[Tensor]:
        """All states but the first, or the rows of the sink that are wanted."""
        graph, w = self.graph.with_values(values), dict(zip(self.dag.edges, weights, strict=True))
        if self.rows is None:
            states = propagate_dag(graph, self.dag, h, w, choices=self.choices, return_states=True)
            return [states[node] for node in self.dag.nodes[1:]]
        rows, options = self.rows, {"support": self.support}
        if self.planned:
            rows, options = graph.plan_rows(self.dag, rows, self.choices, **options), {}
        return [propagate_dag(graph, self.dag, h, w, choices=self.choices, rows=rows, **options)]

    def dense(self, h: Tensor, values: Tensor, *weights: Tensor) -> list[Tensor]:
        """The same by the formula, with dense matrices."""
        forward = self.graph.forward
        owner = forward.edge_seg()
        place = (forward.seg_rel.long()[owner], forward.seg_row()[owner], forward.col.long())
        matrices = self.loops.index_put(place, values, accumulate=True)
        states = {self.dag.source: self.supported(h)}
        for (j, k), w in sorted(
            zip(self.dag.edges, weights, strict=True),
            key=lambda link: self.dag.nodes.index(link[0][1]),
        ):
            state = torch.einsum("imn,npf,ipq->mqf", matrices, states[j], w * self.used((j, k)))
            states[k] = states[k] + state if k in states else state
        if self.rows is None:
            return [states[node] for node in self.dag.nodes[1:]]
        return [states[self.dag.sink][self.rows]]

    def used(self, edge: Edge) -> Tensor:
        """1 where an edge may use a relation, else 0."""
        names = self.graph.relation_names
        used = names if self.choices is None else self.choices.get(edge, names)
        return torch.tensor([float(name in used) for name in names])[:, None, None]

    def supported(self, h: Tensor) -> Tensor:
        if self.support is None:
            return h
        keep = torch.zeros(len(h), 1, 1, dtype=h.dtype)
        keep[self.support] = 1.0
        return h * keep


def random_problem(rng: random.Random) -> Problem:
    dtype = rng.choice(list(TOLERANCE))
    graph = random_graph(rng, torch.float64 if dtype == torch.float64 else torch.float32)
    dag = random_dag(rng, max_nodes=5)
    ranks = {node: rng.randint(1, 4) for node in dag.nodes}
    h = random_layout(rng, (graph.num_nodes, ranks[dag.source], rng.choice([1, 3, 16, 33, 64])))
    weights = [random_layout(rng, (graph.num_relations, ranks[j], ranks[k])) for j, k in dag.edges]
    rows = support = None
    if rng.random() < 0.5:
        rows, support = random_rows(rng, graph), rng.choice([None, random_rows(rng, graph)])
    inputs = [x.detach().requires_grad_() for x in (h.to(dtype), graph.values(), *weights)]
    choices = random_choices(rng, graph, dag)
    return Problem(
        graph, folded_loops(graph), dag, choices, rows, support, rng.random() < 0.3, inputs
    )


def random_rows(rng: random.Random, graph: RelationGraph) -> Tensor:
    """Ids in any order, some of them twice, or a mask."""
    size = graph.num_nodes
    if rng.random() < 0.3:
        return torch.rand(size) < rng.choice([0.0, 0.2, 0.8, 1.0])
    count = rng.choice([0, 1, 3, size, 2 * size]) if size else 0
    return torch.randint(max(size, 1), (count,), dtype=rng.choice([torch.int32, torch.int64]))


def random_graph(rng: random.Random, dtype: torch.dtype) -> RelationGraph:
    """With node types or without, of any density, perhaps without nodes, edges or relations."""
    normalize = rng.choice([None, "row", "sym"])
    counts = {kind: rng.choice([0, 1, 4, 20]) for kind in ("a", "b")[: rng.randint(1, 2)]}
    relations = {}
    for i in range(rng.randint(0, 4)):
        source, target = rng.choice(list(counts)), rng.choice(list(counts))
        shape = counts[target], counts[source]
        density = rng.choice([0.0, 0.05, 0.3, 1.0])
        generator = np.random.default_rng(rng.randrange(2**32))
        value = (generator.random(shape) + 0.1) * (generator.random(shape) < density)
        relations[source, f"r{i}", target] = sp.csr_array(value)
    return RelationGraph.from_scipy(
        relations, num_nodes=counts, normalize=normalize, dtype=dtype,
        self_loops=rng.random() < 0.5, identity=rng.random() < 0.5, zero=rng.random() < 0.5,
    )  # fmt: skip


def random_choices(rng: random.Random, graph: RelationGraph, dag: Dag):
    if rng.random() < 0.5:
        return None
    names = list(graph.relation_names)
    some = rng.sample(dag.edges, rng.randint(0, len(dag.edges)))
    return {edge: rng.sample(names, rng.randint(0, len(names))) for edge in some}


def random_layout(rng: random.Random, shape: tuple[int, ...]) -> Tensor:
    """Random numbers: contiguous, transposed, strided, broadcast or from the middle of others."""
    kind = rng.randrange(5)
    if kind == 0:
        return torch.randn(shape)
    if kind == 1:
        return torch.randn(shape[::-1]).permute(2, 1, 0)
    if kind == 2:
        return torch.randn(shape[0], 2 * shape[1], shape[2])[:, ::2]
    if kind == 3:
        return torch.randn(shape[0], 1, shape[2]).expand(shape)
    return torch.randn(shape[0] + 1, shape[1], shape[2] + 3)[1:, :, 2:-1]


def folded_loops(graph: RelationGraph) -> Tensor:
    """(C, N, N), without edges."""
    bare = graph.with_values(torch.zeros_like(graph.values())).to_scipy()
    loops = torch.zeros(graph.num_relations, graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    for i, matrix in enumerate(bare.values()):
        loops[i] = torch.from_numpy(matrix.toarray())
    return loops


def compare_derivatives(rng: random.Random, problem: Problem, order: int) -> None:
    """Some outputs, their gradient in a random direction, the gradient of that, and so on."""
    kinds = [problem.inputs, leaves(problem.inputs), leaves(problem.inputs, Tensor.abs)]
    functions: list[Callable] = [problem.states, problem.dense, problem.dense]
    results = [function(*inputs) for function, inputs in zip(functions, kinds, strict=True)]
    some = rng.sample(range(len(results[0])), rng.randint(1, len(results[0])))
    results = [[outputs[k] for k in some] for outputs in results]
    assert all(state.requires_grad for state in results[0])
    for depth in range(order + 1):
        for got, want, size in zip(*results, strict=True):
            assert depth > 0 or got.dtype == problem.dtype
            assert_close(got, want, size, problem.dtype)
        if depth < order:
            direction = [torch.randn(got.shape, dtype=torch.float64).to(got) for got in results[0]]
            along = [direction, direction, [x.abs() for x in direction]]
            results = [gradient(*each) for each in zip(results, along, kinds, strict=True)]


def leaves(inputs: Sequence[Tensor], change: Callable = lambda x: x) -> list[Tensor]:
    return [change(x.detach().double()).requires_grad_() for x in inputs]


def gradient(
    outputs: Sequence[Tensor], direction: Sequence[Tensor], inputs: Sequence[Tensor]
) -> list[Tensor]:
    """Of the outputs in a direction; zero where these depend on nothing any more."""
    pairs = [
        (out, v.to(out)) for out, v in zip(outputs, direction, strict=True) if out.requires_grad
    ]
    if not pairs:
        return [torch.zeros_like(x) for x in inputs]
    ends, along = zip(*pairs, strict=True)
    return list(
        torch.autograd.grad(
            ends, inputs, along, create_graph=True, allow_unused=True, materialize_grads=True
        )
    )


def compare_tangents(problem: Problem) -> None:
    """Forward mode, in a random direction."""
    inputs = [x.detach().clone() for x in problem.inputs]  # torch has no duals of expanded tensors
    direction = [torch.randn_like(x) for x in inputs]
    got = torch.func.jvp(problem.states, tuple(inputs), tuple(direction))[1]
    exact = [tuple(x.double() for x in each) for each in (inputs, direction)]
    want = torch.func.jvp(problem.dense, *exact)[1]
    size = torch.func.jvp(problem.dense, *(tuple(x.abs() for x in each) for each in exact))[1]
    for a, b, limit in zip(got, want, size, strict=True):
        assert_close(a, b, limit, problem.dtype)


def compare_bits(problem: Problem) -> None:
    """Rows and their gradients are those that are selected from the whole sink, bit for bit."""
    h, values, *weights = problem.inputs
    w = dict(zip(problem.dag.edges, weights, strict=True))
    graph = problem.graph.with_values(values)
    whole = propagate_dag(graph, problem.dag, problem.supported(h), w, choices=problem.choices)[
        problem.rows
    ]
    (some,) = problem.states(*problem.inputs)
    assert torch.equal(some, whole)
    direction = torch.randn_like(some)
    got = torch.autograd.grad(some, problem.inputs, direction)
    want = torch.autograd.grad(whole, problem.inputs, direction)
    for a, b in zip(got, want, strict=True):
        assert torch.equal(a, b), (a - b).abs().max()


def assert_close(got: Tensor, want: Tensor, size: Tensor, dtype: torch.dtype) -> None:
    assert got.shape == want.shape
    error = (got.double() - want.double()).abs()
    tolerance = max(TOLERANCE[dtype], TOLERANCE[got.dtype])  # weights may have another type
    limit = tolerance * size.double().abs() + 1e-30
    assert (error <= limit).all(), f"off by {(error / limit).max():.3g} times what is allowed"
