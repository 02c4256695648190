"""KnowledgeGraph: from triples of every kind, with clear errors, and warnings with counts."""

import warnings

import numpy as np
import pytest
import torch

from tensus_tn.rules import KnowledgeGraph

NAMED = [("ann", "mother", "bob"), ("bob", "father", "eve")]


@pytest.fixture(autouse=True)
def _warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_names_get_ids_in_the_order_of_their_appearance():
    graph = KnowledgeGraph.from_triples(NAMED, valid=[("eve", "mother", "ann")])
    assert graph.entities == ("ann", "bob", "eve")
    assert graph.relations == ("mother", "father")
    assert graph.train.tolist() == [[0, 0, 1], [1, 1, 2]]
    assert graph.valid.tolist() == [[2, 0, 0]]
    assert graph.test.shape == (0, 3)
    assert graph.known.tolist() == [[0, 0, 1], [1, 1, 2], [2, 0, 0]]
    assert graph.entity("eve") == graph.entity(2) == 2


def test_given_names_keep_their_order():
    graph = KnowledgeGraph.from_triples(NAMED, entities=["eve", "bob", "ann", "dan"])
    assert graph.entities == ("eve", "bob", "ann", "dan")
    assert graph.train.tolist() == [[2, 0, 1], [1, 1, 0]]
    with pytest.raises(ValueError, match="'eve' is not among the entity names"):
        KnowledgeGraph.from_triples(NAMED, entities=["ann", "bob"])


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor, lambda x: torch.tensor(x).int()])
def test_ids(kind):
    graph = KnowledgeGraph.from_triples(kind([[0, 0, 1], [1, 1, 4]]))
    assert graph.num_entities == 5
    assert graph.relations == ("0", "1")
    assert graph.train.dtype == torch.long


def test_facts_are_part_of_the_graph():
    graph = KnowledgeGraph.from_triples([(0, 0, 1)], facts=[(1, 0, 0)])
    assert graph.train.tolist() == [[1, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"train": []}, ValueError, "no training triples"),
        ({"train": [(0, 1)]}, ValueError, r"train: expected triples .* got \(0, 1\)"),
        (
            {"train": np.zeros((2, 4), int)},
            ValueError,
            r"expected triples \(n, 3\), got .*\(2, 4\)",
        ),
        ({"train": np.zeros((2, 3))}, TypeError, "expected ids or names, got float64"),
        ({"train": [("a", 0, "b")]}, TypeError, "got both"),
        ({"train": NAMED, "test": [(0, 0, 1)]}, TypeError, "got both"),
        ({"train": [(0, 0, 10**12)]}, ValueError, "1,000,000,000,001 entity names take"),
        ({"train": [(0, 0, -1)]}, ValueError, "ids of a tail from 0 to 0, got -1"),
        ({"train": [(0, 2, 1)], "relations": ["r"]}, ValueError, "ids of a relation from 0 to 0"),
        ({"train": NAMED, "relations": ["r", "r"]}, ValueError, "relation name 'r'|not among"),
    ],
)
def test_errors(arguments, error, message):
    with pytest.raises(error, match=message):
        KnowledgeGraph.from_triples(**arguments)


@pytest.mark.parametrize(
    ("valid", "test", "message"),
    [
        ([(1, 0, 0), (1, 0, 0)], [], "1 repeated triples of valid are dropped"),
        ([(0, 0, 1)], [], "1 triples of valid are in train as well"),
        ([(1, 0, 0)], [(1, 0, 0)], "1 triples of test are in valid as well"),
        ([], [(0, 0, 3), (3, 0, 1), (1, 0, 0)], "2 of 3 test triples have an entity"),
        ([(1, 1, 0)], [], r"1 relations of valid have no training triples \('s'\)"),
    ],
)
def test_warnings_with_counts(valid, test, message):
    with pytest.warns(UserWarning, match=message):
        graph = KnowledgeGraph.from_triples(
            [(0, 0, 1), (1, 0, 2)], valid, test, entities="abcd", relations="rs"
        )
    assert len(graph.valid) == len({tuple(x) for x in valid})


def test_unknown_names():
    graph = KnowledgeGraph.from_triples(NAMED)
    with pytest.raises(ValueError, match="no relation 'aunt' among 2: 'mother', 'father'"):
        graph.relation("aunt")
    with pytest.raises(ValueError, match="no entity 3 among 3"):
        graph.entity(3)


def test_relations_of_another_graph():
    graph = KnowledgeGraph.from_triples(NAMED, test=[("bob", "father", "ann")])
    new = graph.with_relations(["aunt", "father", "mother"])
    for split in ("train", "valid", "test"):
        named = [
            [
                (g.entities[h], g.relations[r], g.entities[t])
                for h, r, t in getattr(g, split).tolist()
            ]
            for g in (graph, new)
        ]
        assert named[0] == named[1]
    with pytest.raises(ValueError, match=r"1 relations are not among those given: \['father'\]"):
        graph.with_relations(["mother"])
