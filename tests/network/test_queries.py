"""Every query against the sum over ranks, written out, on random networks."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tensus_tn import Dag, DagTensor
from tests.network.networks import brute_force, random_index, random_tensor

TOLERANCE = {
    torch.float32: {"rtol": 2e-4, "atol": 1e-5},
    torch.float64: {"rtol": 1e-9, "atol": 1e-12},
}


@pytest.fixture
def tensor():
    return DagTensor(Dag.complete(2), choices={(0, 1): 2, (0, 2): 3, (1, 2): 4}, rank=2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("parametrization", ["softmax", "free"])
@pytest.mark.parametrize("seed", range(60))
def test_queries_equal_brute_force(seed, parametrization, dtype):
    """240 random networks: up to 7 nodes, mixed choices, ranks and ties."""
    rng = random.Random(f"{seed} {parametrization} {dtype}")
    t = random_tensor(rng, parametrization, dtype)
    dense, close = brute_force(t), TOLERANCE[dtype]

    def same(actual, expected):
        assert actual.dtype == dtype
        torch.testing.assert_close(actual.double(), expected, **close)

    same(t.to_dense(), dense)
    same(t.sum(), dense.sum())
    index = random_index(t.shape, 12)
    at_index = dense[tuple(index.t())]
    same(t[index], at_index)
    same(t[index.reshape(3, 4, -1)], at_index.reshape(3, 4))
    same(t[index - torch.tensor(t.shape)], at_index)  # negative indices count from the end
    same(t[tuple(index[0].tolist())], at_index[0])
    same(t[index[0]], at_index[0])
    same(t(index), at_index)

    axes = rng.sample(range(t.ndim), rng.randint(1, t.ndim))
    rest = [a for a in range(t.ndim) if a not in axes]
    marginal = (dense.sum(rest) if rest else dense).permute([sorted(axes).index(a) for a in axes])
    same(t.marginal([t.edges[a] for a in axes]), marginal)
    for axis, value in enumerate(t.marginals().values()):
        others = [a for a in range(t.ndim) if a != axis]
        same(value, dense.sum(others) if others else dense)

    if parametrization == "softmax":
        same(t.log_prob(index), at_index.log())
        same(t.log_prob(index[0]), at_index[0].log())
        same(t.entropy(), -(dense * dense.log()).sum())


@given(seed=st.integers(0, 10**9), scale=st.floats(0, 8))
@settings(max_examples=50)
def test_softmax_cores_give_a_distribution(seed, scale):
    """Proposition 1: entries are not negative and sum to one, whatever the logits."""
    t = random_tensor(random.Random(seed), "softmax")
    with torch.no_grad():
        for core in t.parameters():
            core *= scale
    dense = t.to_dense()
    assert (dense >= 0).all()
    torch.testing.assert_close(dense.sum(), torch.ones((), dtype=torch.float64))
    assert t.sum() == 1


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("parametrization", ["softmax", "free"])
def test_gradients(seed, parametrization):
    t = random_tensor(random.Random(seed), parametrization, max_edges=6)
    index = random_index(t.shape, 5)
    names = [name for name, _ in t.named_parameters()]

    def check(query):
        def function(*values):
            for name, value in zip(names, values, strict=True):
                t._parameters[name] = value
            return query()

        inputs = [p.detach().clone().requires_grad_() for p in originals]
        assert torch.autograd.gradcheck(function, inputs)

    originals = list(t.parameters())
    some = t.edges[: max(1, t.ndim // 2)]
    queries = [lambda: t[index], lambda: t[index[0]], lambda: t.marginal(some)]
    queries.append(lambda: tuple(t.marginals().values()))
    if parametrization == "softmax":
        queries += [lambda: t.log_prob(index), lambda: t.entropy()]
    else:
        queries.append(lambda: t.sum())
    if t.ndim > 1:
        left = t.condition({t.edges[0]: 0})
        queries += [left.to_dense, lambda: tuple(left.marginals().values())]
    for query in queries:
        check(query)


def test_all_marginals_are_differentiable_only_where_gradients_are_wanted():
    left = DagTensor(Dag.complete(3), choices=3, rank=2).condition({(0, 1): 0})
    assert left.marginals()[1, 3].requires_grad
    with torch.no_grad():
        assert not left.marginals()[1, 3].requires_grad


@pytest.mark.parametrize("dag", [Dag.path(500), Dag.complete(7)], ids=["path of 500", "28 edges"])
def test_log_prob_is_right_where_entries_underflow(dag):
    exact = DagTensor(dag, choices=30, rank=2, dtype=torch.float64)
    t = DagTensor(dag, choices=30, rank=2)
    t.load_state_dict(exact.state_dict())
    index = torch.randint(30, (20, len(dag.edges)))
    expected, log_prob = exact.log_prob(index), t.log_prob(index)
    assert (expected < -88).all()  # below the smallest positive float32
    torch.testing.assert_close(log_prob.double(), expected, rtol=1e-5, atol=1e-3)
    torch.testing.assert_close(t.log_prob(index[0]).double(), expected[0], rtol=1e-5, atol=1e-3)
    log_prob.mean().backward()
    expected.mean().backward()
    for single, double in zip(t.parameters(), exact.parameters(), strict=True):
        assert single.grad.isfinite().all()
        torch.testing.assert_close(single.grad.double(), double.grad, rtol=1e-3, atol=3e-5)


def test_entries_are_right_where_the_sum_over_ranks_would_overflow():
    """4^99 rank states: too many for a float32 before the division by their number."""
    dag = Dag.path(100)
    t = DagTensor(dag, choices=1, rank=4)
    torch.testing.assert_close(
        t[torch.zeros(3, 100, dtype=torch.long)], torch.ones(3), rtol=1e-4, atol=0
    )


@pytest.mark.parametrize("parametrization", ["softmax", "free"])
def test_a_memory_limit_cuts_batches_and_slices_contractions(parametrization):
    arguments = {"choices": 3, "rank": 3, "parametrization": parametrization}
    t = DagTensor(Dag.complete(4), **arguments)
    small = DagTensor(Dag.complete(4), **arguments, memory_limit=4 * 30)
    small.load_state_dict(t.state_dict())
    index = random_index(t.shape, 100)
    assert small.plan("entries", batch=100).piece < 100
    torch.testing.assert_close(small[index], t[index])
    torch.testing.assert_close(small.sum(), t.sum())
    torch.testing.assert_close(small.marginal([(0, 1)]), t.marginal([(0, 1)]))


def test_what_cannot_fit_says_its_size():
    t = DagTensor(Dag.complete(5), choices=6, rank=2)
    with pytest.raises(ValueError, match=r"470,184,984,576 entries \(1,880,739,938,304 bytes\)"):
        t.to_dense()
    with pytest.raises(ValueError, match="470,184,984,576 entries"):
        t.entropy()
    t = DagTensor(Dag.path(2), choices=10, rank=2, memory_limit=100)
    with pytest.raises(ValueError, match="memory limit of 100 bytes"):
        t.to_dense()
    assert t.to_dense(memory_limit=1000).shape == (10, 10)


def test_marginals_where_the_sum_over_ranks_would_overflow():
    dag = Dag.path(60)
    choices = {edge: 3 if k < 2 else 1 for k, edge in enumerate(dag.edges)}
    t = DagTensor(dag, choices, rank=8)
    dense = t.to_dense()
    torch.testing.assert_close(dense.sum(), torch.ones(()), rtol=1e-3, atol=0)
    torch.testing.assert_close(dense.flatten()[0], t[(0,) * 60], rtol=1e-3, atol=0)


def test_more_dimensions_than_einsum_has_letters():
    dag = Dag.complete(7)
    choices = {edge: 4 if k < 7 else 1 for k, edge in enumerate(dag.edges)}
    dense = DagTensor(dag, choices, rank=2).to_dense()
    assert dense.shape == (4,) * 7 + (1,) * 21
    torch.testing.assert_close(dense.sum(), torch.ones(()))
    with pytest.raises(ValueError, match="at most 64 dimensions, the result would have 70"):
        DagTensor(Dag.path(70), choices=1, rank=2).to_dense()


def test_a_contraction_that_would_never_end_is_refused():
    t = DagTensor(Dag.complete(18), choices=2, rank=16)
    left = t.condition(dict.fromkeys(t.edges[:-1], 0))
    for query in (lambda: t.plan("entries"), lambda: left.log_prob([0]), lambda: left.sample(2)):
        with pytest.raises(ValueError, match="entries, above the limit"):
            query()


def test_the_entropy_of_sharp_cores_has_a_finite_gradient():
    t = DagTensor(Dag.complete(3), choices=4, rank=2, init_scale=15.0)
    assert (t.to_dense() == 0).any()
    t.entropy().backward()
    assert all(core.grad.isfinite().all() for core in t.parameters())


def test_inference_mode():
    for t in (
        DagTensor(Dag.complete(2), choices=3, rank=2, parametrization="free"),
        DagTensor(Dag.complete(2), choices=3, rank=2).condition({(0, 1): 0}),
    ):
        expected = t.marginals()[1, 2]
        with torch.inference_mode():
            torch.testing.assert_close(t.marginals()[1, 2], expected)
            assert t[t.top_k(1).index].shape == (1,)


def test_an_index_of_lists_and_arrays():
    t = DagTensor(Dag.complete(2), choices=3, rank=2)
    rows = [[0, 1, 2], [2, 1, 0]]
    expected = t[torch.tensor(rows)]
    torch.testing.assert_close(t[rows], expected)
    torch.testing.assert_close(t[np.array(rows)], expected)
    torch.testing.assert_close(t[np.array(rows[0])], expected[0])
    torch.testing.assert_close(t[np.int64(0), 1, np.int32(2)], expected[0])
    left = t.condition({(0, 1): np.int64(2)})
    torch.testing.assert_close(left.to_dense(), t.condition({(0, 1): 2}).to_dense())


def test_the_sum_of_softmax_cores_is_part_of_the_graph():
    t = DagTensor(Dag.complete(2), choices=3, rank=2)
    t.sum().backward()
    assert t.core_0.grad.abs().max() == 0


def test_an_empty_batch():
    t = DagTensor(Dag.complete(3), choices=3, rank=2)
    assert t[torch.zeros(0, 6, dtype=torch.long)].shape == (0,)
    assert t.log_prob(torch.zeros(2, 0, 6, dtype=torch.long)).shape == (2, 0)


def test_entropy_estimate_and_its_gradient():
    t = DagTensor(Dag.complete(3), choices=3, rank=2, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    exact, estimate = t.entropy(), t.entropy(samples=200_000, generator=generator)
    torch.testing.assert_close(estimate, exact, rtol=0, atol=0.02)
    wanted = torch.autograd.grad(exact, list(t.parameters()))
    found = torch.autograd.grad(estimate, list(t.parameters()))
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0.01)


def test_plans_are_shown_for_every_query():
    t = DagTensor(Dag.complete(3), choices=3, rank=2, parametrization="free")
    nothing = DagTensor(Dag.complete(3), choices=3, rank=2).plan("sum")  # one, by construction
    assert nothing.flops == 0
    assert nothing() == 1
    for query, arguments in (
        ("entries", {"batch": 1}),
        ("entries", {"batch": 1000}),
        ("sum", {}),
        ("marginal", {"edges": [(0, 1)]}),
        ("dense", {}),
    ):
        plan = t.plan(query, **arguments)
        assert plan.flops > 0
        assert plan.largest > 0
        assert plan.treewidth >= 1
        assert all(len(step) in (1, 2) for step in plan.path)
        assert plan.equation in str(plan)
    with pytest.raises(ValueError, match="query must be"):
        t.plan("product")


@pytest.mark.parametrize("shape", [(1,), (5,)])
def test_nan_parameters_are_named_and_not_passed_on(tensor, shape):
    index = torch.zeros(*shape, 3, dtype=torch.long)
    with torch.no_grad():
        tensor.core_2[0, 0, 0] = float("nan")
    queries = [
        lambda: tensor[index],
        lambda: tensor[0, 0, 0],
        lambda: tensor.log_prob(index),
        lambda: tensor.marginal([(1, 2)]),
        tensor.marginals,
        tensor.to_dense,
        tensor.sum,
        tensor.entropy,
        tensor.top_k,
        lambda: tensor.sample(3),
        lambda: tensor.rsample(3),
    ]
    for query in queries:
        with pytest.raises(ValueError, match=r"parameters of edge \(1, 2\) contain NaN"):
            query()


def test_unknown_edges_and_choices(tensor):
    with pytest.raises(ValueError, match=r"\(2, 1\) is not among the edges"):
        tensor.marginal([(2, 1)])
    with pytest.raises(ValueError, match="named twice"):
        tensor.marginal([(0, 1), (0, 1)])
    with pytest.raises(ValueError, match=r"\(0, 9\) is not among the edges"):
        tensor.condition({(0, 9): 0})
    with pytest.raises(ValueError, match="index 2 on axis 0 is out of range for 2 choices"):
        tensor.condition({(0, 1): 2})
    with pytest.raises(ValueError, match="no choice 'AP'"):
        tensor.condition({(0, 1): "AP"})
    with pytest.raises(ValueError, match=r"\(0, 1\) is not among the edges"):
        tensor.condition({(0, 1): 0}).condition({(0, 1): 1})


@pytest.mark.parametrize("query", ["log_prob", "sample", "rsample", "entropy"])
def test_free_cores_are_no_distribution(query):
    t = DagTensor(Dag.path(2), choices=3, rank=2, parametrization="free")
    arguments = {"log_prob": ((0, 0),), "entropy": ()}.get(query, (3,))
    with pytest.raises(ValueError, match=f"{query} needs a distribution"):
        getattr(t, query)(*arguments)


@pytest.mark.parametrize("number", [0, -1, 1.5])
def test_bad_numbers(tensor, number):
    for query in (tensor.sample, tensor.rsample, tensor.top_k):
        with pytest.raises(ValueError, match="positive integer"):
            query(number)
    with pytest.raises(ValueError, match="positive integer"):
        tensor.top_k(1, budget=number)
    if number != 1.5:
        with pytest.raises(ValueError, match="temperature must be positive"):
            tensor.rsample(3, temperature=number)


@pytest.mark.parametrize("limit", [0, -1, 1.5, "1GB", None])
def test_bad_memory_limit(tensor, limit):
    with pytest.raises(ValueError, match="memory_limit must be a positive integer"):
        DagTensor(Dag.path(2), choices=3, memory_limit=limit)
    if limit is not None:
        with pytest.raises(ValueError, match="memory_limit must be a positive integer"):
            tensor.to_dense(memory_limit=limit)


def test_iterating_is_refused(tensor):
    with pytest.raises(TypeError, match="not iterable"):
        list(tensor)
