"""Queries inside torch.compile and torch.func."""

import pytest
import torch
from packaging.version import Version

from tensus_tn import Dag, DagTensor, set_plan_cache_size
from tests.network.networks import random_index

# Older compilers of torch can't take a plan for a constant.
pytestmark = pytest.mark.skipif(
    Version(torch.__version__).release < (2, 13), reason="torch.compile of queries needs torch 2.13"
)

QUERIES = {
    "log_prob": lambda t, index: t.log_prob(index),
    "entries": lambda t, index: t[index],
    "sum": lambda t, index: t.sum(),
}


def make(parametrization):
    return DagTensor(Dag.complete(3), choices=4, rank=3, parametrization=parametrization)


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    ("query", "parametrization"),
    [("log_prob", "softmax"), ("entries", "softmax"), ("entries", "free"), ("sum", "free")],
)
def test_queries_compile_to_one_graph(query, parametrization, dynamic):
    torch.compiler.reset()
    t, function = make(parametrization), QUERIES[query]
    compiled = torch.compile(function, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for num in (50, 70):
        index = random_index(t.shape, num)
        value, expected = compiled(t, index), function(t, index)
        torch.testing.assert_close(value, expected)
        value.sum().backward()
        found = [core.grad for core in t.parameters()]
        t.zero_grad()
        expected.sum().backward()
        for gradient, core in zip(found, t.parameters(), strict=True):
            torch.testing.assert_close(gradient, core.grad)
        t.zero_grad()


@pytest.mark.slow
def test_one_graph_may_have_many_plans():
    torch.compiler.reset()
    t, u = make("softmax"), DagTensor(Dag.path(4), choices=3, rank=2)
    left = t.condition({(0, 1): 1})

    def function(index, short):
        return t.log_prob(index).sum() + u.log_prob(short).sum() + left.log_prob(index[:, 1:]).sum()

    set_plan_cache_size(1024)  # no plan is known beforehand
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    index, short = random_index(t.shape, 30), random_index(u.shape, 30)
    torch.testing.assert_close(compiled(index, short), function(index, short))


@pytest.mark.slow
def test_the_default_compiler_and_its_check_of_the_index():
    torch.compiler.reset()
    t = make("softmax")
    compiled = torch.compile(QUERIES["log_prob"], fullgraph=True)
    index = random_index(t.shape, 50)
    torch.testing.assert_close(compiled(t, index), t.log_prob(index))
    torch.testing.assert_close(compiled(t, index - 4), t.log_prob(index))
    index[3, 3] = 4
    with pytest.raises(RuntimeError, match="out of range"):
        compiled(t, index)


def test_vmap_over_logits():
    t = make("softmax")
    index = random_index(t.shape, 20)
    stacks = {name: torch.stack([p, 2 * p, 0 * p]) for name, p in t.named_parameters()}
    call = torch.func.functional_call
    values = torch.func.vmap(lambda values: call(t, values, (index,)))(stacks)
    for k in range(3):
        expected = call(t, {name: stack[k] for name, stack in stacks.items()}, (index,))
        torch.testing.assert_close(values[k], expected)


def test_vmap_of_the_sum():
    t = make("softmax")
    stacks = {name: torch.stack([p, 2 * p]) for name, p in t.named_parameters()}

    class Sum(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.t = t

        def forward(self):
            return self.t.sum()

    named = {f"t.{name}": stack for name, stack in stacks.items()}
    sums = torch.func.vmap(lambda values: torch.func.functional_call(Sum(), values, ()))(named)
    torch.testing.assert_close(sums, torch.ones(2))


@pytest.mark.parametrize("parametrization", ["softmax", "free"])
def test_derivatives_of_a_batch_by_torch_func(parametrization):
    t = DagTensor(Dag.complete(2), 3, 2, parametrization=parametrization, dtype=torch.float64)
    index = random_index(t.shape, 5)
    names, cores = zip(*t.named_parameters(), strict=True)
    point = tuple(core.detach() for core in cores)

    def entries(*cores):
        return torch.func.functional_call(t, dict(zip(names, cores, strict=True)), (index,))

    def total(*cores):
        return entries(*cores).sum()

    every = tuple(range(len(point)))
    found = torch.func.grad(total, every)(*point)
    torch.testing.assert_close(found, torch.autograd.grad(t[index].sum(), cores))
    jacobian = torch.autograd.functional.jacobian(entries, point)
    torch.testing.assert_close(torch.func.jacrev(entries, every)(*point), jacobian)
    torch.testing.assert_close(torch.func.jacfwd(entries, every)(*point), jacobian)
    hessian = torch.autograd.functional.hessian(total, point)
    torch.testing.assert_close(torch.func.hessian(total, every)(*point), hessian)


def test_a_bad_index_is_found_inside_torch_func():
    t = make("softmax")
    parameters = {name: core.detach() for name, core in t.named_parameters()}
    call = torch.func.functional_call
    with pytest.raises(ValueError, match="out of range for 4 choices"):
        torch.func.grad(lambda p: call(t, p, (torch.full((2, 6), 4),)).sum())(parameters)


@pytest.mark.parametrize("shape", [(3, 6), (3, 5, 6)])
def test_vmap_over_the_index_is_refused(shape):
    t = make("softmax")
    with pytest.raises(ValueError, match="pass it whole, not by vmap"):
        torch.func.vmap(t.log_prob)(torch.zeros(shape, dtype=torch.long))
