"""Features in every form, mapped to one size."""

import copy

import pytest
import torch
import torch.nn.functional as F

from tensus_tn.nn import MetaGraphNet, NodeInputs
from tensus_tn.nn.projection import Projection, Projections
from tests.nn.meta_graphs import SIZES, TYPES


def test_features_may_be_ids_or_sparse(typed_graph, x):
    net = MetaGraphNet(SIZES, 8, 3, TYPES, "A").eval()
    expected = net(x, typed_graph)
    sparse = {kind: h.to_sparse_csr() for kind, h in x.items()}
    torch.testing.assert_close(net(sparse, typed_graph), expected)
    net(sparse, typed_graph).sum().backward()
    project, ids = Projection(4, 8), torch.tensor([3, 0, 0])
    one_hot = F.one_hot(ids, 4).float()
    torch.testing.assert_close(project(ids), project(one_hot))
    other = copy.deepcopy(project)
    project(ids).square().sum().backward()
    other(one_hot).square().sum().backward()
    torch.testing.assert_close(project.weight.grad, other.weight.grad)
    assert project(ids[:0]).shape == (0, 8)
    assert torch.equal(project(ids.to(torch.uint8)), project(ids))


@pytest.mark.parametrize("form", ["dense", "coo", "csr", "csc"])
def test_dropout_of_features_keeps_some_and_scales_them(form):
    torch.manual_seed(0)
    x = torch.rand(200, 50) * (torch.rand(200, 50) < 0.3)
    given = {
        "dense": x,
        "coo": x.to_sparse(),
        "csr": x.to_sparse_csr(),
        "csc": x.to_sparse_csc(),
    }[form]
    same = Projection(50, 50, bias=False)
    torch.nn.init.eye_(same.weight)
    dropped = same(given, dropout=0.25)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], x[kept] / 0.75)
    assert 0.7 < kept.sum() / (x != 0).sum() < 0.8
    torch.testing.assert_close(same(given), x)


def test_dropout_of_ids_is_of_what_they_become():
    torch.manual_seed(0)
    project, ids = Projection(5, 400), torch.arange(5)
    dropped = project(ids, dropout=0.25)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], project(ids)[kept] / 0.75)
    assert 0.7 < kept.float().mean() < 0.8


def test_more_weights_than_the_memory_holds_are_refused():
    with pytest.raises(ValueError, match=r"10,000,000,000,000 weights .* bytes of memory"):
        Projections({"a": 10_000}, 10**9)


def test_several_inputs_of_a_type_are_added_up():
    project = Projections({"a": NodeInputs(features=5, id=3, degree=4, spectral=2), "b": 4}, 8)
    x = {
        "a": NodeInputs(torch.randn(3, 5), torch.arange(3), torch.randn(3, 4), torch.randn(3, 2)),
        "b": torch.randn(2, 4),
    }
    maps = project.maps[0]
    parts = {"features": x["a"].features, "id": x["a"].id}
    parts["computed"] = torch.cat([x["a"].degree, x["a"].spectral], 1)
    expected = sum(maps[name](value) for name, value in parts.items())
    torch.testing.assert_close(project(x)[0], expected)
    torch.testing.assert_close(project(x)[1], project.maps[1](x["b"]))
    biases = [maps[name].bias for name in maps]
    assert [bias is None for bias in biases] == [False, True, True]  # one for the type


def test_dropout_of_inputs_spares_degrees_and_embeddings():
    torch.manual_seed(0)
    project = Projections({"a": NodeInputs(id=500, degree=2)}, 8, bias=False)
    x = NodeInputs(id=torch.arange(500), degree=torch.randn(500, 2))
    ids, degrees = project.maps[0]["id"](x.id), project.maps[0]["computed"](x.degree)
    left = project({"a": x}, dropout=0.25)[0] - degrees
    kept = left.abs() > 1e-6
    torch.testing.assert_close(left[kept], ids[kept] / 0.75, rtol=1e-3, atol=1e-5)
    assert 0.7 < kept.float().mean() < 0.8


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        (NodeInputs(id=torch.arange(3)), ValueError, r"inputs \['id', 'computed'\], got \['id'\]"),
        (NodeInputs(id=3, degree=torch.ones(3, 2)), TypeError, "must be a tensor, got int"),
    ],
)
def test_wrong_inputs_are_refused(inputs, error, message):
    with pytest.raises(error, match=message):
        Projections({"a": NodeInputs(id=3, degree=2)}, 8)({"a": inputs})
    with pytest.raises(ValueError, match="no inputs"):
        Projections({"a": NodeInputs()}, 8)


def test_a_size_is_read_off_the_first_features_with_dropout_too():
    projections = Projections({"a": -1}, 4)
    (h,) = projections({"a": torch.randn(3, 5)}, 0.5)
    assert h.shape == (3, 4)
    assert projections.maps[0].in_features == 5
