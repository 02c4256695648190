"""Sums, multiples, inner products, distances and truncations against dense tensors."""

import random

import pytest
import torch

from tensus_tn import Dag, DagTensor
from tests.network.networks import brute_force, random_tensor

DIAMOND = Dag([(0, 1), (0, 2), (1, 3), (2, 3)])


def free(dag, choices=3, rank=2, seed=0, **options):
    options = {"parametrization": "free", "dtype": torch.float64} | options
    return DagTensor(dag, choices, rank, **options, generator=torch.Generator().manual_seed(seed))


def dense_of(tensor):
    return tensor.to_dense().detach()


@pytest.mark.parametrize("first", ["softmax", "free"])
@pytest.mark.parametrize("second", ["softmax", "free"])
@pytest.mark.parametrize("seed", range(6))
def test_inner_products_of_any_two_networks_of_one_shape(seed, first, second):
    rng = random.Random(seed)
    a = random_tensor(rng, first, max_edges=6)
    b = DagTensor(Dag.path(a.ndim), list(a.shape), 2, parametrization=second, dtype=torch.float64)
    x, y = brute_force(a), brute_force(b)
    for p, q, u, v in ((a, b, x, y), (b, a, y, x), (a, a, x, x)):
        torch.testing.assert_close(p.inner(q).detach(), (u * v).sum())
        torch.testing.assert_close(p.dist(q).detach(), (u - v).norm(), atol=1e-7, rtol=1e-7)
    torch.testing.assert_close(a.norm().detach(), x.norm())
    with pytest.raises(ValueError, match="the shapes differ"):
        a.inner(DagTensor(Dag.path(a.ndim + 1), 2, 2))


def test_inner_products_under_a_condition_and_of_long_paths():
    t = DagTensor(Dag.complete(3), 3, 2, dtype=torch.float64)
    left = t.condition({(0, 1): 1})
    torch.testing.assert_close(left.norm(), left.to_dense().norm())
    torch.testing.assert_close(left.inner(left), left.to_dense().square().sum())
    flat = DagTensor(Dag.path(600), 1, 8)  # 8^599 states of the ranks, and one entry
    torch.testing.assert_close(flat.norm(), torch.ones(()))


def test_gradients_of_inner_products():
    a, b = free(Dag.complete(2)), DagTensor(Dag.path(3), 3, 2, dtype=torch.float64)
    found = torch.autograd.grad(a.inner(b) + a.norm(), [*a.parameters(), *b.parameters()])
    x, y = a.to_dense(), b.to_dense()
    wanted = torch.autograd.grad((x * y).sum() + x.norm(), [*a.parameters(), *b.parameters()])
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(
    ("dag", "ties"),
    [
        (Dag.path(1), "node"),
        (Dag.path(2), "node"),
        (Dag([(2, 3), (0, 1), (1, 2)]), "node"),
        (Dag.path(4), "global"),
        (DIAMOND, "global"),
        (Dag([(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)]), "node"),
    ],
    ids=str,
)
def test_sums_differences_and_multiples(dag, ties):
    a, b = free(dag, rank=2, ties=ties), free(dag, rank=3, ties=ties, seed=1)
    x, y = dense_of(a), dense_of(b)
    torch.testing.assert_close(dense_of(a + b), x + y)
    torch.testing.assert_close(dense_of(a - b), x - y)
    torch.testing.assert_close(dense_of(2.5 * a), 2.5 * x)
    torch.testing.assert_close(dense_of(a * -2), -2 * x)
    torch.testing.assert_close(dense_of(-a), -x)
    assert (a + b).structure.ranks == tuple(5 for _ in a.structure.ranks)
    assert (a + b).ties == a.ties
    torch.testing.assert_close(dense_of(a), x)


def test_sums_that_are_no_network_are_refused():
    with pytest.raises(ValueError, match=r"the edge \(0, 2\) joins source and sink"):
        free(Dag.complete(2)) + free(Dag.complete(2))
    with pytest.raises(ValueError, match="ranks are not joined by edges"):
        free(DIAMOND) + free(DIAMOND)
    with pytest.raises(ValueError, match="same Dag, choices and ties"):
        free(Dag.path(3)) + free(Dag.path(3), 4)
    with pytest.raises(ValueError, match="same Dag, choices and ties"):
        free(Dag.path(3)) + free(Dag.path(3), ties="global")
    with pytest.raises(ValueError, match="free cores"):
        DagTensor(Dag.path(3), 3, 2) + DagTensor(Dag.path(3), 3, 2)
    with pytest.raises(ValueError, match="free cores"):
        2 * DagTensor(Dag.path(3), 3, 2)
    for wrong in (lambda t: t + 1, lambda t: t - 1, lambda t: t * "a"):
        with pytest.raises(TypeError):
            wrong(free(Dag.path(3)))


@pytest.mark.parametrize("dag", [Dag.path(4), Dag([(2, 3), (0, 1), (3, 4), (1, 2)])], ids=str)
def test_rounding_a_path_is_as_good_as_an_svd(dag):
    t = free(dag, 4, 3)
    x = dense_of(t)
    doubled = t + t
    back = doubled.round(tol=1e-9)
    assert back.structure.ranks == t.structure.ranks
    torch.testing.assert_close(dense_of(back), 2 * x)
    torch.testing.assert_close(dense_of(doubled.round(3)), 2 * x)
    # One cut: the best of its rank, by the theorem of Eckart and Young.
    matrix = free(Dag.path(2), 6, 5)
    s = torch.linalg.svdvals(dense_of(matrix))
    low = matrix.round(2)
    assert low.structure.ranks == (2,)
    torch.testing.assert_close((dense_of(low) - dense_of(matrix)).norm(), s[2:].norm())
    for tol in (0.3, 0.05):
        rounded = t.round(tol=tol)
        assert (dense_of(rounded) - x).norm() <= tol * x.norm()
        assert sum(rounded.structure.ranks) <= sum(t.structure.ranks)
    mixed = t.round({1: 1, 2: 3, 3: 2})
    assert all(a <= b for a, b in zip(mixed.structure.ranks, (1, 3, 2), strict=True))


def test_rounding_keeps_dtype_and_settings_and_goes_by_shrink_elsewhere():
    t = DagTensor(Dag.complete(3), 3, 4)
    torch.testing.assert_close(t.round(2).to_dense(), t.shrink(2).to_dense())
    with pytest.raises(ValueError, match="give a rank"):
        t.round(tol=0.1)
    direct = free(Dag.complete(3), 3, 4)  # with a link from source to sink
    torch.testing.assert_close(dense_of(direct.round(2)), dense_of(direct.shrink(2)))
    assert direct.round({1: 1, 2: 9}).structure.ranks == (1, 4)  # it is the highest rank
    cp = free(Dag.path(3), rank=3, ties="global")
    torch.testing.assert_close(dense_of(cp.round(5)), dense_of(cp))
    with pytest.raises(ValueError, match="give a rank"):
        free(Dag.path(3), ties="global").round()
    path = free(Dag.path(3), ["a", "b", "c"], 2, dtype=torch.float32)
    assert path.round(1).dtype == torch.float32
    assert path.round(1).choice_names == path.choice_names
    one = free(Dag.path(1), 4)
    torch.testing.assert_close(dense_of(one.round()), dense_of(one))
