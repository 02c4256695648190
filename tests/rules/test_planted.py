"""The planted graph is what its docstring says."""

import pytest

from tensus_tn.rules import planted_rules


def test_every_start_has_one_answer_among_as_many_candidates_as_kinds():
    graph = planted_rules(num_chains=20, kinds=3)
    facts = {
        (graph.entities[h], graph.relations[r], graph.entities[t])
        for h, r, t in graph.known.tolist()
    }
    starts = {h for h, r, _ in facts if r == "r"}
    assert len(starts) == 20
    for start in starts:
        [(first, middle)] = [(r, t) for h, r, t in facts if h == start and r != "r"]
        [answer] = [t for h, r, t in facts if h == start and r == "r"]
        after = {r: t for h, r, t in facts if h == middle}
        assert set(after) == {"b1", "b2", "b3"}
        assert after["b" + first[1:]] == answer
        assert len([1 for _, r, t in facts if t in after.values()]) == 4  # nothing else leads there


def test_errors():
    with pytest.raises(ValueError, match="within the reach of rank 1"):
        planted_rules(kinds=2)
