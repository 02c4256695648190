"""The genetic search: better than chance, reproducible, within the links' choices."""

import pytest

from benchmarks.reproduce.genetic import genetic_search
from tensus_tn import Dag, DagTensor


def tensors():
    dag = Dag.path(4)
    choices = {edge: ["A", "B", "C", "D", "E"][: 3 + k % 3] for k, edge in enumerate(dag.edges)}
    both = Dag.complete(2)
    return [
        DagTensor(dag, choices, 1),
        DagTensor(both, {key: list("ABCD") for key in both.edges}, 1),
    ]


def mistakes(meta_graphs):
    """How many links do not have their first choice."""
    names = [name for m in meta_graphs for name in m.relations.values()]
    assert len(names) == 4 + 3
    return sum(name != "A" for name in names)


def search(seed, score=mistakes, **options):
    options = {"generations": 20, "population": 10, **options}
    return genetic_search(tensors(), score, seed=seed, **options)


@pytest.mark.parametrize("seed", range(5))
def test_it_finds_the_best_where_chance_would_not(seed):
    found, history = search(seed)  # 200 of 60 * 4 * 64 = 15,360
    assert found[0].score == 0
    assert len(history) == 20
    assert max(history[0]) > 2


def test_candidates_are_scored_once_in_order_and_the_same_for_a_seed():
    calls = []

    def score(meta_graphs):
        calls.append(str(meta_graphs))
        return mistakes(meta_graphs)

    found, history = search(3, score, generations=3)
    assert len(set(calls)) == len(calls) == 30 == len(found)
    assert sorted(s for scores in history for s in scores) == [c.score for c in found]
    assert [mistakes(c.meta_graphs) for c in found] == [c.score for c in found]
    assert found == search(3, generations=3)[0] != search(4, generations=3)[0]


def test_children_are_of_the_best_alone_where_nothing_mutates():
    found, _ = search(0, generations=5, mutation=0.0)
    first, _ = search(0, generations=1)
    parents = [candidate.meta_graphs for candidate in first[:5]]
    best = found[0].meta_graphs
    for t in range(2):
        for edge, name in best[t].relations.items():
            assert name in {parent[t].relations[edge] for parent in parents}


def test_it_ends_where_nothing_new_is_left():
    tensor = DagTensor(Dag.path(1), {(0, 1): ["A", "B"]}, 1)
    found, history = genetic_search([tensor], mistakes_of_one, generations=3, population=4, seed=0)
    assert [c.score for c in found] == [0, 1]
    assert [len(scores) for scores in history] == [2, 0, 0]


def mistakes_of_one(meta_graphs):
    return int(meta_graphs[0].relations[0, 1] != "A")
