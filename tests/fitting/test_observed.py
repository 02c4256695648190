"""complete: held-out error, the problem against its Jacobian, the report, and bad input."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tensus_tn import Dag, DagTensor, complete

KINDS = [
    (Dag.path(1), "node"),
    (Dag.path(4), "node"),
    (Dag.path(4), "global"),
    (Dag.complete(3), "node"),
    (Dag.complete(2), "global"),
    (Dag([(0, 1), (0, 2), (1, 3), (2, 3)]), "node"),
]


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def truth(dag: Dag, choices=4, rank=2, *, seed=0, ties="node") -> Tensor:
    tensor = DagTensor(
        dag,
        choices,
        rank,
        parametrization="free",
        ties=ties,
        dtype=torch.float64,
        generator=generator(seed),
    )
    return tensor.to_dense().detach()


def observe(dense: Tensor, share: float, seed: int = 0) -> Tensor:
    """A mask with exactly this share of the entries."""
    chosen = torch.randperm(dense.numel(), generator=generator(seed))
    seen = torch.zeros(dense.numel(), dtype=torch.bool)
    seen[chosen[: round(share * dense.numel())]] = True
    return seen.view(dense.shape)


def held_out_error(tensor: DagTensor, dense: Tensor, seen: Tensor) -> float:
    difference = tensor.to_dense().detach() - dense
    return float(difference[~seen].norm() / dense[~seen].norm())


@pytest.mark.parametrize(
    ("dag", "choices", "rank"),
    [(Dag.path(6), 5, 2), (Dag.path(6), 5, 3), (Dag.complete(3), 5, 2), (Dag.complete(3), 5, 3)],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_tenth_of_an_order_six_tensor_gives_the_rest(dag, choices, rank, seed):
    dense = truth(dag, choices, rank, seed=500 + seed)
    seen = observe(dense, 0.1, seed)
    tensor, report = complete(seen.nonzero(), dense[seen], dag, choices, rank, seed=seed)
    assert held_out_error(tensor, dense, seen) < 1e-2
    assert report.error < 1e-6


@pytest.mark.parametrize("method", ["als", "gradient"])
def test_cp_by_both_methods(method):
    dense = truth(Dag.path(3), 8, 2, ties="global", seed=1)
    seen = observe(dense, 0.4)
    tensor, _ = complete(
        seen.nonzero(), dense[seen], Dag.path(3), 8, 2, ties="global", method=method
    )
    assert held_out_error(tensor, dense, seen) < 1e-2


def test_shapes_of_the_batch_negative_indices_and_names():
    dag, dense = Dag.path(2), truth(Dag.path(2), 4, 1)
    index = torch.cartesian_prod(torch.arange(4), torch.arange(4)).view(4, 4, 2)
    tensor, _ = complete(index - 4, dense, dag, list("abcd"), 1)
    torch.testing.assert_close(tensor.to_dense().detach(), dense)
    assert tensor.choice_names[0, 1] == ("a", "b", "c", "d")


@pytest.mark.parametrize("method", ["als", "gradient"])
def test_inference_mode_does_not_matter(method):
    dense = truth(Dag.path(3))
    with torch.inference_mode():
        index = observe(dense, 0.5).nonzero()
        values = dense[tuple(index.t())]
        options = {"restarts": 1, "method": method, "max_sweeps": 5}
        tensor, _ = complete(index, values, Dag.path(3), 4, 2, **options)
    expected, _ = complete(index.clone(), values.clone(), Dag.path(3), 4, 2, **options)
    torch.testing.assert_close(tensor.to_dense(), expected.to_dense())
    tensor.to_dense().sum().backward()  # the network can be trained


def test_repeated_entries_count_as_often():
    index = torch.tensor([[0], [0], [0], [1]])
    values = torch.tensor([1.0, 1.0, 4.0, 5.0])
    tensor, report = complete(index, values, Dag.path(1), 2, 1)
    torch.testing.assert_close(tensor.to_dense().detach(), torch.tensor([2.0, 5.0]))
    assert report.error == pytest.approx((6 / 43) ** 0.5)


def test_a_choice_that_was_never_observed_is_zero():
    dense = truth(Dag.path(3), 4, 2)
    seen = torch.ones_like(dense, dtype=torch.bool)
    seen[:, 2] = False
    tensor, _ = complete(seen.nonzero(), dense[seen], Dag.path(3), 4, 2)
    assert held_out_error(tensor, dense, ~seen) < 1e-6
    assert tensor.to_dense()[:, 2].abs().max() < 1e-6 * dense.abs().max()


def test_dtype_and_seed():
    dense = truth(Dag.path(3), 5, 2, seed=2).float()
    seen = observe(dense, 0.7)
    results = [complete(seen.nonzero(), dense[seen], Dag.path(3), 5, 2, seed=s) for s in (1, 1, 2)]
    tensors = [tensor for tensor, _ in results]
    assert tensors[0].dtype == torch.float32
    assert torch.equal(tensors[0].core_0, tensors[1].core_0)
    assert not torch.equal(tensors[0].core_0, tensors[2].core_0)
    assert held_out_error(tensors[0], dense, seen) < 1e-2
    assert results[0][1].seed == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex128])
def test_sparse_tensors_in_coordinates(dtype):
    dense = truth(Dag.path(3), 6, 2, seed=3).to(dtype)
    seen = observe(dense, 0.6)
    sparse = torch.sparse_coo_tensor(seen.nonzero().t(), dense[seen], dense.shape)
    options = {"seed": 1, "restarts": 3}
    expected, _ = complete(seen.nonzero(), dense[seen], Dag.path(3), [6, 6, 6], 2, **options)
    tensor, _ = complete(sparse, dag=Dag.path(3), rank=2, **options)
    assert tensor.dtype == dtype
    assert torch.equal(tensor.to_dense(), expected.to_dense())
    assert float((tensor.to_dense() - dense).detach().norm() / dense.norm()) < 1e-3

    class Coo:  # as the package `sparse` has it
        coords, data, shape = seen.nonzero().t().numpy(), dense[seen].numpy(), tuple(dense.shape)

    again, _ = complete(Coo(), dag=Dag.path(3), rank=2, **options)
    assert torch.equal(again.to_dense(), expected.to_dense())
    named, _ = complete(sparse, dag=Dag.path(3), choices=list("abcdef"), rank=2, **options)
    assert named.choice_names[0, 1] == tuple("abcdef")


def test_a_sparse_tensor_is_not_the_same_as_its_zeros():
    """A stored zero was observed; what is not stored was not."""
    index = torch.cartesian_prod(torch.arange(3), torch.arange(3))[1:]
    values = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0, 2.0, 0.0, 4.0])
    sparse = torch.sparse_coo_tensor(index.t(), values, (3, 3))
    tensor, report = complete(sparse, dag=Dag.path(2), rank=1)
    assert report.error < 1e-6
    torch.testing.assert_close(tensor.to_dense().detach()[2], torch.tensor([2.0, 0.0, 4.0]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.eye(3),), "sparse tensor in coordinates, got a tensor of torch.strided"),
        ((torch.eye(3).to_sparse_csr(),), "in coordinates, got a tensor of torch.sparse_csr"),
        (([1, 2],), "in coordinates, got list"),
        ((torch.eye(3).long(), torch.ones(3)), "needs the number of choices"),
    ],
)
def test_bad_sparse_tensors(arguments, message):
    with pytest.raises(TypeError, match=message):
        complete(*arguments, dag=Dag.path(2), rank=1)
    with pytest.raises(TypeError, match="needs a Dag"):
        complete(*arguments)


@pytest.mark.parametrize(("dag", "ties"), KINDS)
@pytest.mark.parametrize("method", ["als", "gradient"])
def test_every_method_on_every_kind_of_dag(dag, ties, method):
    """Data that no network of rank 2 has exactly: the error falls, and is that of the result."""
    shape = [3 + k % 2 for k in range(len(dag.edges))]
    dense = torch.rand(shape, generator=generator(2), dtype=torch.float64)
    index, options = observe(dense, 0.8).nonzero(), {"ties": ties, "max_sweeps": 8, "restarts": 1}
    values = dense[tuple(index.t())]
    tensor, report = complete(index, values, dag, shape, 2, method=method, **options)
    difference = (tensor[index].detach() - values).norm() / values.norm()
    assert report.error == pytest.approx(float(difference), abs=1e-9)
    assert report.error < min(report.errors[0], 1)
    if method == "als":
        tensor, _ = complete(index, values, dag, shape, 2, nonnegative=True, **options)
        assert all(bool((core >= 0).all()) for core in tensor.parameters())


def test_fixed_cores_stay():
    dense = truth(Dag.path(3), 5, 2, seed=3)
    index = observe(dense, 0.7).nonzero()
    start, _ = complete(index, dense[tuple(index.t())], Dag.path(3), 5, 2)
    tensor, report = complete(
        index, 3 * dense[tuple(index.t())], Dag.path(3), 5, 2, init=start, fixed=[(0, 1), (1, 2)]
    )
    assert torch.equal(tensor.core_0, start.core_0)
    assert torch.equal(tensor.core_1, start.core_1)
    torch.testing.assert_close(tensor.core_2, 3 * start.core_2)
    assert report.error < 1e-6


INDEX, VALUES = torch.tensor([[0, 1], [1, 0]]), torch.tensor([1.0, 2.0])


@pytest.mark.parametrize(
    ("index", "values", "error", "message"),
    [
        (INDEX, VALUES[:1], ValueError, r"index \(2, 2\) and values \(1,\) disagree"),
        (INDEX[:, :1], VALUES, ValueError, r"expected an index \(..., 2\)"),
        (INDEX + 3, VALUES, ValueError, "out of range for 3 choices"),
        (INDEX - 5, VALUES, ValueError, "out of range for 3 choices"),
        (INDEX.float(), VALUES, TypeError, "integers"),
        (INDEX, VALUES.long(), TypeError, "floating-point.*int64"),
        (INDEX, VALUES / 0, ValueError, "finite, got inf"),
        (INDEX, VALUES * float("nan"), ValueError, "finite, got nan"),
        (INDEX[:0], VALUES[:0], ValueError, "at least one observed entry"),
    ],
)
def test_bad_data(index, values, error, message):
    with pytest.raises(error, match=message):
        complete(index, values, Dag.path(2), 3, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 0}, "rank.*positive integer, got 0"),
        ({"choices": 0}, "choices.*positive integer, got 0"),
        ({"method": "em"}, "method must be"),
        ({"restarts": -1}, "restarts must be"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        complete(INDEX, VALUES, Dag.path(2), **({"choices": 3, "rank": 2} | options))
