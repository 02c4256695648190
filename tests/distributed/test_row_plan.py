import pytest
import torch

from tensus_tn import Dag, RelationGraph
from tensus_tn.distributed import DistributedGraph, partition
from tensus_tn.distributed.problem import Problem
from tests.distributed import tasks
from tests.distributed.equal import assert_same

CASES = [
    # graph, dag, partition, made from, choices, and the rows wanted of the sink
    ("plain", "complete", "metis", "graph", None, [3, 17, 18]),
    ("rows", "path", "metis", "edges", None, [0, 39]),
    ("valued", "complete", "lopsided", "edges", "turns", [5, 6, 7, 30]),
    ("sym with loops", "path", "range", "graph", "turns", [11]),
    ("folded", "path", "random", "graph", "turns", None),
    ("float64", "link", "metis", "graph", None, []),
]


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_some_rows_of_some_relations(crew, size, case):
    """As the same rows of one process, whatever the others want."""
    *case, rows = case
    if size == 1:
        case[2] = "range"
    assert_same(crew.run(size, tasks.compare, *case, None, rows)[0])


def test_what_no_link_chooses_and_no_row_needs_does_not_travel(crew):
    everything = crew.run(4, tasks.traffic, "complete", "metis")
    one_relation = crew.run(4, tasks.traffic, "complete", "metis", "turns")
    few_rows = crew.run(4, tasks.traffic, "link", "metis", None, True)
    assert all(a[0] < b[0] for a, b in zip(one_relation, everything, strict=True))
    assert sum(a[0] for a in few_rows) < sum(a[1] for a in few_rows) / 2


def test_a_plan_is_that_of_the_whole_graph():
    """In one process: as many rows of each state as `RelationGraph.plan_rows` finds."""
    index, _ = tasks.edges(3)
    whole = RelationGraph.from_edge_index(index, 40, identity=True)
    graph = DistributedGraph.from_graph(whole, partition(whole, 1))
    rows = torch.tensor([7, 3])
    expected = whole.plan_rows(Dag.path(2), rows, {(1, 2): ["A"]}).needed
    problem = Problem((1, 1, 1), (0, 1), (1, 2), (1, 1, 1, 1, 0, 0))
    for way in graph._ways(problem, rows):
        assert all(map(torch.equal, [s.stored for s in way.states], [n.long() for n in expected]))
    assert graph._ways(problem, rows) is graph._ways(problem, rows.clone())
    assert graph._ways(problem, rows) is not graph._ways(problem, torch.tensor([3]))
