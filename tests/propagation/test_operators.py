"""What torch asks of an operator; and that inconsistent tensors never crash it."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tensus_tn.dag import Dag
from tensus_tn.propagation import operators
from tensus_tn.propagation.functional import propagate, propagate_dag
from tests.propagation.problems import (
    GRAPHS,
    assert_close,
    dense,
    formula,
    native,
    operator_calls,
    random_graph,
    random_state,
    random_weights,
    small_problem,
    tree_detach,
)


@pytest.mark.parametrize("kind", ["weighted", "as in DiffMG"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("names", [None, ["r1"]])
def test_opcheck(kind, dtype, names):
    graph = random_graph(7, 20, 2, **GRAPHS[kind])
    values = graph.values().clone().requires_grad_()
    h = random_state(7, 2, 5, dtype).requires_grad_()
    w = random_weights(graph, 2, 3, dtype=torch.float32).requires_grad_()
    calls = operator_calls(graph.with_values(values), h, w, names)
    assert set(calls) == {"tensus_tn.propagate.default", "tensus_tn.propagate_backward.default"}
    op, args = calls["tensus_tn.propagate.default"]
    torch.library.opcheck(op, (h, w.reshape(-1), values, *args[3:]))
    op, args = calls["tensus_tn.propagate_backward.default"]
    torch.library.opcheck(op, tree_detach(args))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(dynamic):
    graph, h, w = small_problem(dtype=torch.float32)
    dag = Dag.complete(2)

    def loss(h, w):
        state = propagate(graph, h.sin(), w)
        weights = {(0, 1): w[:, :1], (1, 2): w.transpose(1, 2)[:, :, :1], (0, 2): w[:, :1, :1]}
        out = propagate_dag(graph, dag, state.sum(1), weights, choices={(0, 2): ["r1", "zero"]})
        return (out * 2).cos().sum()

    compiled = torch.compile(loss, fullgraph=True, dynamic=dynamic)
    for features in (5, 9):
        h = random_state(7, 2, features, torch.float32).requires_grad_()
        got, want = (torch.autograd.grad(f(h, w), [h, w]) for f in (compiled, loss))
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


def test_export():
    class Layer(torch.nn.Module):
        def __init__(self, graph, w):
            super().__init__()
            self.graph, self.w = graph, torch.nn.Parameter(w.detach())

        def forward(self, h):
            return propagate(self.graph, h, self.w.softmax(0)).relu()

    graph, h, w = small_problem(dtype=torch.float32)
    layer = Layer(graph, w)
    exported = torch.export.export(layer, (h.detach(),))
    assert "tensus_tn.propagate" in exported.graph_module.code
    torch.testing.assert_close(exported.module()(h), layer(h))


def test_autocast():
    """h keeps its type, whatever it is; the weights and the sums stay float32."""
    graph, h, w = small_problem(dtype=torch.float32)
    plain = propagate(graph, h, w)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(propagate(graph, h, w), plain)
        half = torch.nn.functional.linear(h, torch.eye(5))
        out = propagate(graph, half, w)
        args = [t.float() for t in (h, w)]
    assert half.dtype == out.dtype == torch.bfloat16
    assert_close(out.detach(), formula(dense(graph), half, args[1]).detach(), torch.bfloat16)
    out.float().sum().backward()
    assert h.grad.dtype == w.grad.dtype == torch.float32


def test_schemas_agree():
    for name, schema in operators.SCHEMAS.items():
        op = getattr(torch.ops.tensus_tn, name).default
        assert str(op._schema) == f"tensus_tn::{name}{schema}"


def corrupt(value, rng):
    """A likely disaster in the place of a sound argument."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, list) and value and isinstance(value[0], int):
        bad = list(value)
        bad[rng.randrange(len(bad))] = rng.choice([-1, 0, 1, 2, 7, 2**31, 2**40, -(2**40), 2**62])
        return rng.choice([bad, bad[:-1], [*bad, 1], []])
    if isinstance(value, list):
        if not value or rng.random() < 0.3:
            return rng.choice([value[:-1], [*value, torch.zeros(3)], []])
        at = rng.randrange(len(value))
        return [*value[:at], corrupt(value[at], rng), *value[at + 1 :]]
    if value is None:
        return rng.choice([torch.zeros(3), torch.zeros(0), torch.zeros(2, 2)])
    choice = rng.randrange(8)
    if choice == 0:
        return value[: value.shape[0] // 2]
    if choice == 1:
        return torch.cat([value, value])
    if choice == 2:
        return value.unsqueeze(0)
    if choice == 3:
        return value.to(
            rng.choice([torch.int32, torch.int64, torch.float64, torch.float16, torch.bool])
        )
    if choice == 4:
        return torch.stack([value, value], -1)[..., 0]
    if choice == 5:
        return value.to("meta")
    bad = value.clone()
    if bad.numel():
        at = rng.randrange(bad.numel())
        bad.view(-1)[at] = rng.choice([-1, 1, 5, 127, 2**31 - 1, -(2**31)])
    return bad


FUZZ_SCRIPT = """
import random, sys
sys.path.insert(0, {root!r})
import torch
from tests.propagation.problems import *
from tests.propagation.test_operators import corrupt
rng = random.Random({seed})
refused = ran = 0
for kind in GRAPHS:
    graph = random_graph(9, 30, 2, **GRAPHS[kind])
    graph = graph.with_values(graph.values().clone().requires_grad_())
    h, w = random_state(9, 2, 5, torch.float32), random_weights(graph, 2, 3, dtype=torch.float32)
    h, w = h.requires_grad_(), w.requires_grad_()
    calls = [operator_calls(graph, h, w, names) for names in (None, ["r1"])]
    two = torch.stack([w, -w]).detach().requires_grad_()
    calls.append(operator_calls(graph, h, two, ["r0"], groups=[0, 0, 0, 1, 1]))
    for op, args in (call for some in calls for call in some.values()):
        args = tree_detach(args)
        for _ in range(400):
            bad = list(args)
            for _ in range(rng.choice([1, 1, 2])):
                at = rng.randrange(len(bad))
                bad[at] = corrupt(bad[at], rng)
            try:
                op(*bad)
                ran += 1
            except (RuntimeError, ValueError, TypeError, NotImplementedError, IndexError):
                refused += 1
print("refused", refused, "ran", ran)
"""


@pytest.mark.slow
@native
def test_inconsistent_tensors_never_crash():
    """In a child, so that a crash is a failure here and not the end of the run."""
    script = FUZZ_SCRIPT.format(root=str(Path(__file__).parents[2]), seed=random.Random(3).random())
    run = subprocess.run(
        [sys.executable, "-c", script], text=True, capture_output=True, timeout=300
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert int(run.stdout.split()[1]) > 3000, run.stdout
