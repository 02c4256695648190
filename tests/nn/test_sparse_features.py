"""Products with sparse features, by the kernel and by torch."""

from functools import partial

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from tensus_tn.nn.sparse_features import drop_nonzeros, sparse_product
from tensus_tn.propagation import extension
from tests.propagation.problems import native

FORMS = {
    "coo": torch.Tensor.to_sparse,
    "csr": torch.Tensor.to_sparse_csr,
    "csc": torch.Tensor.to_sparse_csc,
}


def matrix(n, size, share=0.3, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    full = torch.randn(n, size, generator=generator, dtype=dtype)
    return full * (torch.rand(n, size, generator=generator) < share)


@pytest.mark.parametrize("form", list(FORMS))
@pytest.mark.parametrize("shape", [(7, 5), (1, 1), (0, 3), (4, 0), (30, 3)])
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_as_dense(form, shape, share):
    x = matrix(*shape, share)
    weight = torch.randn(shape[1], 6, dtype=x.dtype).requires_grad_()
    got = sparse_product(FORMS[form](x), weight)
    torch.testing.assert_close(got, x @ weight)
    grad = torch.randn_like(got)
    (dw,) = torch.autograd.grad(got, weight, grad)
    torch.testing.assert_close(dw, x.t() @ grad)


def test_entries_named_twice_are_added_up():
    twice = torch.sparse_coo_tensor([[1, 1, 0], [2, 2, 0]], [1.0, 4.0, 3.0], (2, 3))
    assert sparse_product(twice, torch.eye(3)).tolist() == [[3, 0, 0], [0, 0, 5]]


def test_a_change_in_place_is_seen():
    x, weight = matrix(6, 4).to_sparse().coalesce(), torch.eye(4, dtype=torch.float64)
    before = sparse_product(x, weight)
    x.values().mul_(2)
    assert torch.equal(sparse_product(x, weight), 2 * before)


@native
def test_dropout_is_that_of_torch(monkeypatch):
    x, weight = matrix(40, 20).to_sparse(), torch.randn(20, 3, dtype=torch.float64)
    results = []
    for known in (True, False):
        if not known:
            monkeypatch.setattr(extension, "_C", None)
        torch.manual_seed(3)
        results.append(sparse_product(x, weight, 0.5))
    torch.testing.assert_close(*results)
    assert not torch.allclose(results[0], sparse_product(x, weight))


def test_features_that_learn_and_compiled_ones():
    x, weight = matrix(6, 4), torch.randn(4, 3, dtype=torch.float64)
    learned = x.to_sparse().requires_grad_()
    sparse_product(learned, weight).sum().backward()
    torch.testing.assert_close(learned.grad.to_dense()[x != 0], weight.sum(1).expand(6, 4)[x != 0])
    compiled = torch.compile(lambda x, w: sparse_product(x, w) + 0, backend="eager")
    torch.testing.assert_close(compiled(x.to_sparse(), weight), x @ weight)


def test_nothing_is_dropped_with_probability_zero():
    x = matrix(3, 3).to_sparse()
    assert drop_nonzeros(x, 0.0) is x


@native
def test_every_derivative_of_the_weight():
    x, weight = matrix(5, 4, 0.6).to_sparse(), torch.randn(4, 3, dtype=torch.float64)
    weight.requires_grad_()
    product = partial(sparse_product, x)
    assert gradcheck(product, weight, check_forward_ad=True)
    assert gradgradcheck(product, weight)
    several = torch.randn(2, 4, 3, dtype=torch.float64)
    for dim in (0, 1, 2):
        mapped = torch.func.vmap(product, dim, dim)(several.movedim(0, dim))
        torch.testing.assert_close(mapped.movedim(dim, 0), x.to_dense() @ several)


@native
def test_dropout_under_vmap():
    """The same for all, or another for each: the product of what each has kept."""
    x, weights = matrix(40, 20).to_sparse(), torch.randn(3, 20, 2, dtype=torch.float64)
    product = partial(sparse_product, x, dropout=0.5)
    alike = torch.func.vmap(product, randomness="same")(weights[:1].expand(3, -1, -1))
    assert torch.equal(alike[0], alike[1])
    identity = torch.eye(20, dtype=torch.float64)
    apart = torch.func.vmap(product, randomness="different")(identity.expand(3, -1, -1))
    for kept in apart:
        assert torch.equal(kept[kept != 0], 2 * x.to_dense()[kept != 0])
    assert not torch.equal(apart[0], apart[1])

    def squared(weight):
        return sparse_product(x, weight, 0.5).square().sum()

    torch.manual_seed(5)
    grads = torch.func.vmap(torch.func.grad(squared), randomness="different")(weights)
    torch.manual_seed(5)
    kept = torch.func.vmap(lambda _: product(identity), randomness="different")(weights)
    torch.testing.assert_close(grads, 2 * kept.mT @ (kept @ weights))


@pytest.mark.parametrize("shape", [(5, 2), (3, 2), (4,), (1, 4, 2)])
def test_a_weight_of_another_size_is_refused(shape):
    with pytest.raises(ValueError, match=r"weight must have shape \(4, F\) for features \(6, 4\)"):
        sparse_product(matrix(6, 4).to_sparse(), torch.zeros(shape, dtype=torch.float64))
