import pytest
import torch

from tensus_tn import Dag, RelationGraph, propagate, propagate_dag
from tensus_tn.propagation.graph_part import GraphPart


class Half(GraphPart):
    """The first rows of a graph, whose states come from the whole one."""

    def __init__(self, graph, rows):
        self.graph, self.rows = graph, rows
        self.relation_names = graph.relation_names
        self.node_counts = (("a", 1), ("b", rows - 1))

    @property
    def device(self):
        return self.graph.device

    def states(self, h, w, ranks, tails, heads, chosen, rows, support):
        h = h if support is None else torch.zeros_like(h).index_copy(0, support, h[support])
        whole = torch.cat([h, h.new_zeros(self.graph.num_nodes - self.rows, *h.shape[1:])])
        here = propagate(self.graph, whole, w.reshape(-1, *ranks))[: self.rows]
        return [here if rows is None else here[rows]]


@pytest.fixture
def part():
    index = torch.tensor([[0, 1, 2], [1, 2, 0]])
    return Half(RelationGraph.from_edge_index({"A": index}, 3, identity=True), 2)


def test_what_is_here(part):
    assert (part.num_nodes, part.num_relations) == (2, 2)
    assert part.node_types == {"a": slice(0, 1), "b": slice(1, 2)}
    assert part.relation_index("identity") == 1
    with pytest.raises(ValueError, match="no relation 'B'"):
        part.relation_index("B")


def test_propagate_asks_it_for_states(part):
    h = torch.tensor([[[1.0]], [[2.0]]])
    assert propagate(part, h, torch.ones(2, 1, 1)).flatten().tolist() == [1.0, 3.0]
    dag, weights = Dag.path(1), {(0, 1): torch.ones(2, 1, 1)}
    assert propagate_dag(part, dag, h, weights, rows=torch.tensor([1])).flatten().tolist() == [3.0]
    only = propagate_dag(part, dag, h, weights, support=torch.tensor([True, False]))
    assert only.flatten().tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match="with N = 2, got"):
        propagate(part, torch.ones(3, 1, 1), torch.ones(2, 1, 1))
