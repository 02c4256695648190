"""Networks with complex cores: every query that has a meaning, against the dense tensor."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tensus_tn import Dag, DagTensor

KINDS = [
    (Dag.path(1), "node"),
    (Dag.path(4), "node"),
    (Dag.path(4), "global"),
    (Dag.complete(3), "node"),
    (Dag.complete(2), "global"),
    (Dag([(0, 1), (0, 2), (1, 3), (2, 3)]), "node"),
]


def network(dag: Dag, ties: str, seed: int = 0, dtype=torch.complex128, rank=2) -> DagTensor:
    generator = torch.Generator().manual_seed(seed)
    choices = [2 + k % 2 for k in range(len(dag.edges))]
    options = {"parametrization": "free", "ties": ties, "dtype": dtype, "generator": generator}
    return DagTensor(dag, choices, rank, **options)


@pytest.mark.parametrize(("dag", "ties"), KINDS)
def test_queries_against_the_dense_tensor(dag, ties):
    a, b = network(dag, ties), network(dag, ties, seed=1)
    dense, other = a.to_dense(), b.to_dense()
    assert dense.is_complex()
    assert dense.imag.abs().max() > 0
    brute = torch.zeros_like(dense)
    cores, ranks = list(a.cores().values()), a.structure.ranks
    for at in np.ndindex(*dense.shape):
        for states in np.ndindex(*ranks):
            product = torch.ones((), dtype=dense.dtype)
            for e, core in enumerate(cores):
                ends = [0 if end is None else states[end] for end in a.structure.ends[e]]
                product = product * core[at[e], ends[0], ends[1]]
            brute[at] += product
    torch.testing.assert_close(dense, brute)
    index = torch.tensor(list(np.ndindex(*dense.shape)))
    torch.testing.assert_close(a[index], dense.flatten())
    torch.testing.assert_close(a[tuple(index[-1].tolist())], dense.flatten()[-1])
    torch.testing.assert_close(a.sum(), dense.sum())
    torch.testing.assert_close(a.inner(b), torch.vdot(dense.flatten(), other.flatten()))
    torch.testing.assert_close(a.norm(), dense.norm().real)
    torch.testing.assert_close(a.dist(b), (dense - other).norm().real)
    for e, marginal in enumerate(a.marginals().values()):
        others = [d for d in range(dense.ndim) if d != e]
        torch.testing.assert_close(marginal, dense.sum(others) if others else dense)
    if len(dag.edges) > 1:
        torch.testing.assert_close(a.condition({dag.edges[0]: 1}).to_dense(), dense[1])
    np.testing.assert_array_equal(np.asarray(a), dense.detach().numpy())


def test_an_inner_product_with_real_cores():
    a = network(Dag.path(3), "node")
    b = network(Dag.path(3), "node", dtype=torch.float32)
    expected = torch.vdot(a.to_dense().flatten(), b.to_dense().flatten().to(torch.complex128))
    torch.testing.assert_close(a.inner(b), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(b.inner(a), expected.conj(), rtol=1e-5, atol=1e-5)
    assert b.dist(a).dtype == torch.float64


@pytest.mark.parametrize("ties", ["node", "global"])
def test_algebra(ties):
    a, b = network(Dag.path(4), ties), network(Dag.path(4), ties, seed=1)
    dense = a.to_dense()
    torch.testing.assert_close((a + b).to_dense(), dense + b.to_dense())
    torch.testing.assert_close((a - b).to_dense(), dense - b.to_dense())
    torch.testing.assert_close((2j * a).to_dense(), 2j * dense)
    with pytest.raises(TypeError, match="no multiple by 1j"):
        1j * network(Dag.path(3), "node", dtype=torch.float32)


def test_rounding_a_train():
    a = network(Dag.path(4), "node")
    rounded = (a + a).round(tol=1e-10)
    assert rounded.structure.ranks == (2, 2, 2)
    torch.testing.assert_close(rounded.to_dense(), 2 * a.to_dense())
    torch.testing.assert_close(a.grow(4).shrink(2).to_dense(), a.to_dense())


def test_gradients():
    a = network(Dag.complete(2), "node")
    cores = [core.detach().requires_grad_() for core in a.parameters()]

    def norm_and_entries(*cores):
        values = dict(zip(dict(a.named_parameters()), cores, strict=True))
        dense = torch.func.functional_call(a, values, (torch.tensor([[0, 1, 1], [1, 2, 0]]),))
        return dense, dense.abs().square().sum()

    assert torch.autograd.gradcheck(norm_and_entries, cores)


def test_what_has_no_meaning():
    a = network(Dag.path(3), "node")
    with pytest.raises(ValueError, match="have no order"):
        a.top_k(1)
    with pytest.raises(ValueError, match="needs a distribution"):
        a.sample(1)


def test_layouts_of_tensorly():
    a = network(Dag.path(3), "node")
    torch.testing.assert_close(DagTensor.from_tt(a.to_tt()).to_dense(), a.to_dense())
    cp = network(Dag.path(3), "global")
    torch.testing.assert_close(DagTensor.from_cp(*cp.to_cp()).to_dense(), cp.to_dense())


def test_nan_is_named():
    a = network(Dag.path(3), "node")
    with torch.no_grad():
        a.core_1[0, 0, 0] = complex(0, float("nan"))
    with pytest.raises(ValueError, match=r"parameters of edge \(1, 2\) contain NaN"):
        a.to_dense()
