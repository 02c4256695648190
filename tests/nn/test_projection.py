"""Features in every form, mapped to one size."""

import copy

import torch
import torch.nn.functional as F

from tensus_tn.nn import MetaGraphNet
from tensus_tn.nn.projection import Projection
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
