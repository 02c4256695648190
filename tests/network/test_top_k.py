import itertools
import random
from copy import deepcopy

import pytest
import torch

from tensus_tn import Dag, DagTensor
from tensus_tn.network import query_plans
from tensus_tn.network.semiring import MAX_PRODUCT
from tests.network.networks import brute_force, operands, random_tensor


def ranked(dense: torch.Tensor, k: int) -> list[tuple[int, ...]]:
    """The indices of the ``k`` largest entries; entries that agree to ten digits are ties."""
    index = itertools.product(*(range(size) for size in dense.shape))
    pairs = zip((-float(f"{v:.10g}") for v in dense.flatten().tolist()), index, strict=True)
    return [i for _, i in sorted(pairs)[:k]]


@pytest.mark.parametrize("parametrization", ["softmax", "free"])
@pytest.mark.parametrize("seed", range(40))
def test_top_k_equals_brute_force(seed, parametrization):
    rng = random.Random(seed)
    t = random_tensor(rng, parametrization)
    k = rng.choice([1, 2, 5, 500])
    dense = brute_force(t)
    best = t.top_k(k)
    assert best.exact
    assert best.gap == 0
    assert [tuple(row) for row in best.index.tolist()] == ranked(dense, k)
    torch.testing.assert_close(best.value, dense[tuple(best.index.t())])


@pytest.mark.parametrize("seed", range(10))
def test_top_k_under_conditions(seed):
    rng = random.Random(seed)
    t = random_tensor(rng, "softmax")
    while t.ndim < 2:
        t = random_tensor(rng, "softmax")
    left = t.condition({rng.choice(t.edges): 0})
    best = left.top_k(3)
    assert [tuple(row) for row in best.index.tolist()] == ranked(left.to_dense(), 3)


def test_ties_are_ordered_by_index():
    flat = DagTensor(Dag.complete(3), choices=3, rank=2, init_scale=0.0)
    best = flat.top_k(4)
    assert best.exact
    assert best.index.tolist() == [[0, 0, 0, 0, 0, k] for k in range(3)] + [[0, 0, 0, 0, 1, 0]]
    # Two pairs of entries that are equal by construction: the choices of the last edge are twins.
    t = DagTensor(Dag.complete(2), choices=4, rank=2, dtype=torch.float64)
    with torch.no_grad():
        t.core_2[1] = t.core_2[0]
    assert [tuple(row) for row in t.top_k(6).index.tolist()] == ranked(t.to_dense(), 6)


def test_a_marginal_map_is_not_a_most_probable_explanation():
    """The maximum over choices of the sum over ranks; a maximum over ranks too finds another entry.

    One rank state is certain of choice 0; three states share choice 1, each less certain.
    """
    core = torch.tensor([[0.9, 0.2, 0.2, 0.2], [0.1, 0.8, 0.8, 0.8]])
    t = DagTensor(Dag.path(2), choices=2, rank=4)._filled([core.log(), core.log()])
    assert t.top_k(1).index.tolist() == [[1, 1]]
    explanation = t.plan("dense")(*operands(t), semiring=MAX_PRODUCT)
    assert explanation.argmax() == 0
    assert brute_force(t).argmax() == 3


def test_large_tensors_without_enumeration():
    """The best of 6^15 and of 12^10 entries: better than any of many samples, and proven."""
    for dag, choices in ((Dag.complete(5), 6), (Dag.complete(4), 12)):
        t = DagTensor(dag, choices, rank=4, init_scale=1.5)
        best = t.top_k(5)
        assert best.exact
        assert (best.value[:-1] >= best.value[1:]).all()
        assert t[t.sample(20_000)].max() <= best.value[0]
        # No change of a single choice of the best entry is better.
        for axis in range(t.ndim):
            neighbours = best.index[:1].repeat(choices, 1)
            neighbours[:, axis] = torch.arange(choices)
            assert t[neighbours].max() <= best.value[0] * (1 + 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_top_k_under_an_improbable_condition(dtype):
    """The fixed slice underflows as a probability, in one of the dtypes or in both."""
    for logit in (-200, -2000):
        t = DagTensor(Dag.complete(3), choices=3, rank=2, dtype=dtype)
        with torch.no_grad():
            t.core_0[0] += logit
        left = t.condition({(0, 1): 0})
        best = left.top_k(1)
        assert best.exact
        torch.testing.assert_close(best.value[0], left.to_dense().max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_probabilities_that_underflow_are_told_apart(dtype):
    t = DagTensor(Dag.complete(3), choices=3, rank=2, init_scale=400.0, dtype=dtype)
    best = t.top_k(200)
    assert best.exact
    assert best.value[-1] == 0
    index = torch.cartesian_prod(*(torch.arange(size) for size in t.shape))
    logs = deepcopy(t).double().log_prob(index).detach()
    found = logs.reshape(t.shape)[tuple(best.index.t())]
    torch.testing.assert_close(found, logs.sort(descending=True).values[:200])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_free_entries_that_underflow_are_told_apart(dtype):
    t = DagTensor(Dag.complete(3), choices=3, rank=2, parametrization="free", dtype=dtype)
    expected = t.top_k(4).index
    with torch.no_grad():
        for core in t.parameters():
            core *= torch.finfo(dtype).tiny ** 0.5
    best = t.top_k(4)
    assert best.exact
    assert best.value.abs().max() == 0
    assert torch.equal(best.index, expected)


def test_the_log_domain_is_used_where_entries_underflow():
    t = DagTensor(Dag.path(120), choices=80, rank=1, init_scale=2.0)
    best = t.top_k(1)
    assert best.exact
    expected = [int(core.flatten().argmax()) for core in t.cores().values()]
    assert best.index.tolist() == [expected]


@pytest.mark.parametrize("parametrization", ["softmax", "free"])
def test_edges_without_ranks_stay_out_of_the_plans(parametrization, monkeypatch):
    """Two of eight edges share a rank: a plan has these and the last edge of the prefix."""
    plans, entries = [], query_plans.entries

    def recorded(*query):
        plans.append((len(query) == 5, entries(*query)))  # those of the search name their cores
        return plans[-1][1]

    monkeypatch.setattr(query_plans, "entries", recorded)
    rank = {node: 2 if node == 4 else 1 for node in range(1, 8)}
    t = DagTensor(Dag.path(8), 2, rank, parametrization=parametrization, dtype=torch.float64)
    for tensor in (t, t.condition({(0, 1): 1, (3, 4): 0})):
        best = tensor.top_k(9)
        assert best.exact
        assert [tuple(row) for row in best.index.tolist()] == ranked(tensor.to_dense(), 9)
    assert max(sum(map(len, plan.groups)) for of_search, plan in plans if of_search) == 3


def test_a_budget_stops_the_proof_and_says_so():
    t = DagTensor(Dag.path(12), choices=6, rank=4, init_scale=0.5)
    best = t.top_k(2, budget=3000)
    assert not best.exact
    assert best.gap > 0
    assert best.index.shape == (2, 12)
    torch.testing.assert_close(best.value, t[best.index])
    larger = t.top_k(2, budget=30_000)
    assert larger.gap <= best.gap
    assert larger.value[0] <= best.value[-1].detach() + best.gap


def test_the_gap_is_finite_even_if_the_budget_is_spent_at_once():
    best = DagTensor(Dag.path(20), choices=4, rank=2).top_k(2, budget=1)
    assert not best.exact
    assert 0 < best.gap < float("inf")


def test_entries_that_overflow_are_refused():
    t = DagTensor(Dag.path(6), choices=3, rank=2, parametrization="free", dtype=torch.float64)
    with torch.no_grad():
        for core in t.parameters():
            core *= 1e60
    with pytest.raises(ValueError, match="overflow float64"):
        t.top_k(1)


def test_entries_of_probability_zero_count_too():
    t = DagTensor(Dag.path(2), choices=3, rank=2)
    with torch.no_grad():
        t.core_0[1:] = -float("inf")
    assert len(t.top_k(9).index) == 9


def test_values_carry_gradients():
    t = DagTensor(Dag.complete(2), choices=3, rank=2)
    t.top_k(2).value.sum().backward()
    assert all(core.grad.abs().max() > 0 for core in t.parameters())


def test_entries_that_differ_in_the_eleventh_digit_are_told_apart():
    """Free entries 1 and 1 + 4e-11, softmax entries whose logarithms differ by as much."""
    core = torch.tensor([1.0, 1.0 + 4e-11, 0.5], dtype=torch.float64)
    free = DagTensor(Dag.path(1), 3, parametrization="free", dtype=torch.float64)
    soft = DagTensor(Dag.path(1), 3, dtype=torch.float64)
    assert free._filled([core]).top_k(3).index.tolist() == [[1], [0], [2]]
    assert soft._filled([core]).top_k(3).index.tolist() == [[1], [0], [2]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("parametrization", ["softmax", "free"])
def test_values_come_in_order(parametrization, dtype):
    """On nearly flat tensors, whose entries differ by less than their rounding."""
    for seed in range(5):
        t = DagTensor(
            Dag.complete(3),
            choices=3,
            rank=3,
            parametrization=parametrization,
            init_scale=1e-7,
            generator=torch.Generator().manual_seed(seed),
        )
        if parametrization == "free":
            with torch.no_grad():
                for core in t.parameters():
                    core += 1.0
        value = t.to(dtype).top_k(200).value
        assert value.dtype == dtype
        assert (value[:-1] >= value[1:]).all()


def test_small_entries_beside_a_large_one_are_told_apart():
    t = DagTensor(Dag.path(1), 3, 1, parametrization="free", dtype=torch.float64)
    with torch.no_grad():
        t.core_0.copy_(torch.tensor([1.0, 1e-15, 2e-15]).reshape(3, 1, 1))
    assert t.top_k(2).index.tolist() == [[0], [2]]
