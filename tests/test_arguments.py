"""Bad input to queries: a clear error, before any work."""

import pytest
import torch

from tensus_tn import Dag, DagTensor, set_plan_cache_size


@pytest.fixture
def tensor():
    return DagTensor(Dag.complete(2), choices={(0, 1): 2, (0, 2): 3, (1, 2): 4}, rank=2)


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        ((0, 1), ValueError, "3 integers, one an edge, got 2"),
        (5, ValueError, "3 integers, one an edge, got 1"),
        ((0, 3, 0), ValueError, "index 3 on axis 1 is out of range for 3 choices"),
        ((0, 0, -5), ValueError, "index -5 on axis 2 is out of range for 4 choices"),
        ((0, 0.5, 0), TypeError, "integers, got 0.5 on axis 1"),
        ((0, True, 0), TypeError, "integers, got True on axis 1"),
        (torch.zeros(3), TypeError, "integers, got a tensor of torch.float32"),
        (torch.zeros(5, 3), TypeError, "integers, got a tensor of torch.float32"),
        (torch.zeros(5, 3, dtype=torch.bool), TypeError, "torch.bool"),
        (torch.zeros(5, 4, dtype=torch.long), ValueError, r"index \(..., 3\), got \(5, 4\)"),
        (torch.tensor([[0, 0, 0], [0, 3, 0]]), ValueError, "index 3 on axis 1 of row 1"),
        (torch.tensor([[0, 0, 0], [0, 0, -5]]), ValueError, "index -5 on axis 2 of row 1"),
        (torch.tensor([[0, 0, 2**32 + 1]]), ValueError, "out of range for 4 choices"),
        (torch.zeros((), dtype=torch.long), ValueError, r"got \(\)"),
    ],
)
@pytest.mark.parametrize("query", ["entries", "log_prob"])
def test_bad_index(tensor, query, index, error, message):
    with pytest.raises(error, match=message):
        tensor[index] if query == "entries" else tensor.log_prob(index)


def test_integers_of_any_width(tensor):
    index = torch.tensor([[0, 1, 2], [1, 2, 3]])
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32):
        torch.testing.assert_close(tensor[index.to(dtype)], tensor[index])


@pytest.mark.parametrize("shape", [(1,), (5,)])
def test_nan_parameters_are_named_and_not_passed_on(tensor, shape):
    index = torch.zeros(*shape, 3, dtype=torch.long)
    with torch.no_grad():
        tensor.core_2[0, 0, 0] = float("nan")
    queries = [
        lambda: tensor[index],
        lambda: tensor[0, 0, 0],
        lambda: tensor.log_prob(index),
        lambda: tensor.marginal([(1, 2)]),
        tensor.marginals,
        tensor.to_dense,
        tensor.sum,
        tensor.entropy,
        tensor.top_k,
        lambda: tensor.sample(3),
        lambda: tensor.rsample(3),
    ]
    for query in queries:
        with pytest.raises(ValueError, match=r"parameters of edge \(1, 2\) contain NaN"):
            query()


@pytest.mark.parametrize("query", ["entries", "dense", "marginals", "sample", "top_k"])
def test_an_impossible_condition_is_refused(query):
    t = DagTensor(Dag.path(3), choices=3, rank=2)
    with torch.no_grad():
        t.core_0[0] = -float("inf")
    left = t.condition({(0, 1): 0})
    run = {
        "entries": lambda: left[0, 0],
        "dense": left.to_dense,
        "marginals": left.marginals,
        "sample": lambda: left.sample(3),
        "top_k": left.top_k,
    }
    with pytest.raises(ValueError, match="probability zero"):
        run[query]()


def test_unknown_edges_and_choices(tensor):
    with pytest.raises(ValueError, match=r"\(2, 1\) is not among the edges"):
        tensor.marginal([(2, 1)])
    with pytest.raises(ValueError, match="named twice"):
        tensor.marginal([(0, 1), (0, 1)])
    with pytest.raises(ValueError, match=r"\(0, 9\) is not among the edges"):
        tensor.condition({(0, 9): 0})
    with pytest.raises(ValueError, match="index 2 on axis 0 is out of range for 2 choices"):
        tensor.condition({(0, 1): 2})
    with pytest.raises(ValueError, match="no choice 'AP'"):
        tensor.condition({(0, 1): "AP"})
    with pytest.raises(ValueError, match=r"\(0, 1\) is not among the edges"):
        tensor.condition({(0, 1): 0}).condition({(0, 1): 1})


@pytest.mark.parametrize("query", ["log_prob", "sample", "rsample", "entropy"])
def test_free_cores_are_no_distribution(query):
    t = DagTensor(Dag.path(2), choices=3, rank=2, parametrization="free")
    arguments = {"log_prob": ((0, 0),), "entropy": ()}.get(query, (3,))
    with pytest.raises(ValueError, match=f"{query} needs a distribution"):
        getattr(t, query)(*arguments)


@pytest.mark.parametrize("number", [0, -1, 1.5])
def test_bad_numbers(tensor, number):
    for query in (tensor.sample, tensor.rsample, tensor.top_k):
        with pytest.raises(ValueError, match="positive integer"):
            query(number)
    with pytest.raises(ValueError, match="positive integer"):
        tensor.top_k(1, budget=number)
    if number != 1.5:
        with pytest.raises(ValueError, match="temperature must be positive"):
            tensor.rsample(3, temperature=number)


@pytest.mark.parametrize("limit", [0, -1, 1.5, "1GB", None])
def test_bad_memory_limit(tensor, limit):
    with pytest.raises(ValueError, match="memory_limit must be a positive integer"):
        DagTensor(Dag.path(2), choices=3, memory_limit=limit)
    if limit is not None:
        with pytest.raises(ValueError, match="memory_limit must be a positive integer"):
            tensor.to_dense(memory_limit=limit)


def test_bad_cache_size():
    with pytest.raises(ValueError, match="non-negative integer"):
        set_plan_cache_size(-1)


def test_iterating_is_refused(tensor):
    with pytest.raises(TypeError, match="not iterable"):
        list(tensor)
