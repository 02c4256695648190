"""The best meta-graphs and meta-paths of a distribution."""

import pytest
import torch

from tensus_tn import Dag
from tensus_tn.nn import MetaGraphConv
from tests.nn.meta_graphs import DAGS, TYPES, dense, random_graph


def test_the_best_meta_graphs_are_those_of_the_tensor():
    conv = MetaGraphConv(3, 4, TYPES, target="A", dag=Dag.complete(3), init_scale=1.0)
    best = conv.meta_graphs(4)
    dense_tensor = conv.tensor.to_dense()
    values, index = dense_tensor.flatten().topk(4)
    for m, value, flat in zip(best, values.tolist(), index.tolist(), strict=True):
        assert m.probability == pytest.approx(value)
        at = torch.unravel_index(torch.tensor(flat), conv.tensor.shape)
        for edge, i in zip(m.dag.edges, at, strict=True):
            assert m.relations[edge] == conv.tensor.choice_names[edge][i]
            assert m.weights[edge] == pytest.approx(conv.tensor.marginal([edge])[i].item())
    assert conv.meta_graph() == best[0]


@pytest.mark.parametrize("ties", ["node", "global"])
@pytest.mark.parametrize("dag", DAGS.values(), ids=DAGS)
def test_weights_of_meta_paths_are_the_coefficients_of_the_propagation(dag, ties):
    """The layer's matrix is the sum over words of weight times product."""
    torch.set_default_dtype(torch.float64)
    try:
        names = ["PA", "AP"]
        conv = MetaGraphConv(7, 7, names, dag=dag, ties=ties, init_scale=1.0)
        with torch.no_grad():
            conv.lin.weight.copy_(torch.eye(7))
            conv.lin.bias.zero_()
        graph = random_graph(names=names)
    finally:
        torch.set_default_dtype(torch.float32)
    matrices = dense(graph)
    total = torch.zeros(7, 7, dtype=torch.float64)
    paths = conv.meta_paths(10_000)
    for path in paths:
        product = torch.eye(7, dtype=torch.float64)
        for _, name, _ in path.edge_types:
            product = matrices[name] @ product
        total += path.weight * product
    torch.testing.assert_close(conv(torch.eye(7, dtype=torch.float64), graph), total)
    assert {name for path in paths for _, name, _ in path.edge_types} == set(names)
    weights = [path.weight for path in paths]
    assert weights == sorted(weights, reverse=True)
    assert conv.meta_paths(2) == paths[:2]
