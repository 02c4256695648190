"""Plain PyTorch gives what the kernels give."""

import os
import subprocess
import sys

import pytest

from tensus_tn.propagation import operators
from tests.propagation.problems import (
    GRAPHS,
    TOLERANCE,
    assert_close,
    native,
    operator_calls,
    random_graph,
    random_state,
    random_weights,
    sum_dtype,
    tree_detach,
)


@native
@pytest.mark.parametrize("kind", list(GRAPHS))
@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("names", [None, ["r1"], []])
def test_plain_pytorch_gives_the_same(kind, dtype, names):
    graph = random_graph(20, 80, dtype=sum_dtype(dtype), **GRAPHS[kind])
    values = graph.values().clone().requires_grad_()
    h = random_state(20, 2, 9, dtype).requires_grad_()
    w = random_weights(graph, 2, 3, dtype=sum_dtype(dtype)).requires_grad_()
    calls = operator_calls(graph.with_values(values), h, w, names)
    for name in ("propagate", "propagate_backward"):
        op, args = calls[f"tensus_tn.{name}.default"]
        args = tree_detach(args)
        for a, b in zip(op(*args), operators.PLAIN[name](*args), strict=True):
            assert_close(a, b, dtype)


REFERENCE_SCRIPT = """
import torch, warnings
from tensus_tn.propagation.relation_graph import RelationGraph
from tensus_tn.propagation.functional import propagate
warnings.simplefilter("error")
from tensus_tn.propagation.extension import show_config
assert show_config()["backend"] == "reference"
index = torch.tensor([[0, 1, 2], [1, 2, 2]])
graph = RelationGraph.from_edge_index({"A": index}, 3, identity=True)
h = torch.randn(3, 2, 4, dtype=torch.float64, requires_grad=True)
w = torch.randn(2, 2, 3, dtype=torch.float64, requires_grad=True)
v = torch.rand(3, dtype=torch.float64, requires_grad=True)
assert torch.autograd.gradcheck(lambda h, w, v: propagate(graph.with_values(v), h, w), (h, w, v))
compiled = torch.compile(propagate, fullgraph=True, backend="eager")
assert torch.allclose(compiled(graph.to(torch.float64), h, w), propagate(graph, h, w))
want = propagate(graph, h.float(), w.float())
with torch.autocast("cpu", dtype=torch.bfloat16):
    assert torch.equal(propagate(graph, h.float(), w.float()), want)
print("fine")
"""


@pytest.mark.slow
def test_forced_reference_backend():
    environment = {**os.environ, "TENSUS_BACKEND": "reference"}
    run = subprocess.run([sys.executable, "-c", REFERENCE_SCRIPT], env=environment, text=True,
                         capture_output=True, timeout=300)  # fmt: skip
    assert run.stdout.endswith("fine\n"), run.stderr
