import pytest
import torch

from tensus_tn import Dag, RelationGraph
from tensus_tn.distributed import DistributedGraph, partition
from tensus_tn.distributed.problem import Problem
from tests.distributed import tasks
from tests.distributed.equal import assert_same

CASES = [
    # graph, dag, partition, made from, choices, the rows wanted of the sink, those that the source has
    ("plain", "complete", "metis", "graph", None, [3, 17, 18], None),
    ("rows", "path", "metis", "edges", None, [0, 39], None),
    ("valued", "complete", "lopsided", "edges", "turns", [5, 6, 7, 30], None),
    ("sym with loops", "path", "range", "graph", "turns", [11], None),
    ("folded", "path", "random", "graph", "turns", None, None),
    ("float64", "link", "metis", "graph", None, [], None),
    ("plain", "complete", "metis", "graph", None, None, [4]),
    ("rows", "path", "metis", "edges", None, None, [0, 39]),
    ("valued", "complete", "lopsided", "edges", "turns", [5, 6, 30], [8, 9, 31]),
    ("sym with loops", "path", "range", "graph", "turns", [11], list(range(25))),
    ("folded", "complete", "random", "graph", None, None, []),
    ("float64", "link", "metis", "graph", "turns", [2, 3], [5, 12, 38]),
]


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_some_rows_of_some_relations(crew, size, case):
    """As the same rows of one process, whatever the others want."""
    *case, rows, support = case
    if size == 1:
        case[2] = "range"
    assert_same(crew.run(size, tasks.compare, *case, None, rows, support)[0])


def test_what_no_link_chooses_and_no_row_needs_does_not_travel(crew):
    everything = crew.run(4, tasks.traffic, "complete", "metis")
    one_relation = crew.run(4, tasks.traffic, "complete", "metis", "turns")
    few_rows = crew.run(4, tasks.traffic, "link", "metis", None, True)
    assert all(a[0] < b[0] for a, b in zip(one_relation, everything, strict=True))
    few_sources = crew.run(4, tasks.traffic, "link", "metis", None, False, True)
    for few in (few_rows, few_sources):
        assert sum(a[0] for a in few) < sum(a[1] for a in few) / 2


@pytest.mark.parametrize(
    "support", [None, torch.tensor([1, 30]), torch.tensor([], dtype=torch.int64)]
)
def test_a_plan_is_that_of_the_whole_graph(support):
    """In one process: as many rows of each state as `RelationGraph.plan_rows` finds."""
    index, _ = tasks.edges(3)
    whole = RelationGraph.from_edge_index(index, 40, identity=True)
    graph = DistributedGraph.from_graph(whole, partition(whole, 1))
    rows = torch.tensor([7, 3])
    expected = whole.plan_rows(Dag.path(2), rows, {(1, 2): ["A"]}, support=support).needed
    problem = Problem((1, 1, 1), (0, 1), (1, 2), (1, 1, 1, 1, 0, 0))
    for way in graph._ways(problem, rows, support):
        assert all(map(torch.equal, [s.stored for s in way.states], [n.long() for n in expected]))
    plan = graph._ways(problem, rows, support)
    assert plan is graph._ways(problem, rows.clone(), support)
    assert plan is not graph._ways(problem, torch.tensor([3]), support)
    assert plan is not graph._ways(problem, rows, torch.tensor([1]))
    assert graph._ways(problem, rows, None) is not graph._ways(problem, None, rows)
