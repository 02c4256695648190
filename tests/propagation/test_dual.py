"""The dual problem: its states are the states and their tangents, in whatever form the graph is."""

import pytest
import torch

from tensus_tn.propagation import segments
from tensus_tn.propagation.arguments import Arguments
from tensus_tn.propagation.dual import Direction, Dual
from tests.propagation.problems import (
    GRAPHS,
    operator_calls,
    random_graph,
    random_state,
    random_weights,
)


def problem(kind, names):
    graph = random_graph(9, 30, 3, dtype=torch.float64, **GRAPHS[kind])
    learned = graph.with_values(graph.values().clone().requires_grad_())
    h, w = random_state(9, 2, 4).requires_grad_(), random_weights(graph, 2, 3).requires_grad_()
    _, inputs = operator_calls(learned, h, w, names)["tensus_tn.propagate.default"]
    return Arguments(*inputs)


def moved(given, along, step):
    values = None if along.values is None else given.edge_val + step * along.values
    return given._replace(
        h=given.h if along.h is None else given.h + step * along.h,
        w=given.w if along.w is None else given.w + step * along.w,
        edge_val=given.edge_val if values is None else values,
    )


@pytest.mark.parametrize("names", [None, ["r1", "identity"]])
@pytest.mark.parametrize("kind", ["weighted", "as in DiffMG"])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("moving", ["h", "w", "values", "all"])
def test_states_and_tangents(monkeypatch, kind, names, index, moving):
    monkeypatch.setattr(segments, "INT32_LIMIT", 2**31 if index == torch.int32 else 1)
    names = names if kind == "as in DiffMG" or names is None else ["r1"]
    given = problem(kind, names)
    generator = torch.Generator().manual_seed(3)
    tangents = {
        name: torch.randn(x.shape, generator=generator, dtype=x.dtype)
        for name, x in zip(Direction._fields, given[:3], strict=True)
    }
    along = Direction(*(x if moving in (name, "all") else None for name, x in tangents.items()))
    dual = Dual(given, along)
    assert dual.problem.forward[3].dtype == index
    (both,) = torch.ops.tensus_tn.propagate(*dual.problem)
    (state,) = torch.ops.tensus_tn.propagate(*given)
    before, after = (
        torch.ops.tensus_tn.propagate(*moved(given, along, s))[0] for s in (-1e-5, 1e-5)
    )
    torch.testing.assert_close(both.chunk(2, 1)[0], state)
    torch.testing.assert_close(
        dual.tangents([both])[0], (after - before) / 2e-5, rtol=1e-6, atol=1e-6
    )


def test_indices_widen_where_twice_the_edges_need_it(monkeypatch):
    given = problem("weighted", None)
    assert given.forward[3].dtype == torch.int32
    monkeypatch.setattr(segments, "INT32_LIMIT", 2 * given.num_edges)
    dual = Dual(given, Direction(None, None, torch.ones_like(given.edge_val)))
    assert {x.dtype for x in (*dual.problem.forward, *dual.problem.backward)} == {
        torch.int32,
        torch.int64,
    }
    (both,) = torch.ops.tensus_tn.propagate(*dual.problem)
    assert both.shape[1] == 6
