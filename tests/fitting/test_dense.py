"""decompose: exact recovery, the tensor train against TensorLy, the report, and bad input."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from tensus_tn import Dag, DagTensor, Report, decompose

DIAMOND = Dag([(0, 1), (0, 2), (1, 3), (2, 3)])


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def free(dag: Dag, choices=4, rank=2, *, seed=0, **options) -> DagTensor:
    options = {"dtype": torch.float64} | options
    return DagTensor(
        dag, choices, rank, parametrization="free", generator=generator(seed), **options
    )


def dense_of(tensor: DagTensor) -> Tensor:
    return tensor.to_dense().detach()


def relative_error(tensor: DagTensor, dense: Tensor) -> float:
    return float((dense_of(tensor) - dense).norm() / dense.norm())


@pytest.mark.parametrize(
    ("dag", "rank", "ties"),
    [
        (Dag.path(5), 3, "node"),
        (Dag.complete(3), 2, "node"),
        (Dag.complete(3), 3, "node"),
        (DIAMOND, {1: 2, 2: 3}, "node"),
        (Dag.path(4), 3, "global"),
        (Dag.complete(3), 3, "global"),
    ],
)
def test_recovers_what_the_network_can_represent(dag, rank, ties):
    errors = []
    for seed in range(10):
        dense = dense_of(free(dag, 4, rank, ties=ties, seed=1000 + seed))
        tensor, report = decompose(dense, dag, rank, ties=ties, seed=seed, restarts=5)
        errors.append(relative_error(tensor, dense))
        assert report.error == pytest.approx(errors[-1], abs=1e-9)
    assert sum(error < 1e-6 for error in errors) >= 9, errors


@pytest.mark.slow
@pytest.mark.parametrize("ties", ["node", "global"])
def test_gradient_recovers_too(ties):
    dense = dense_of(free(Dag.complete(3), 3, 2, ties=ties, seed=1))
    tensor, report = decompose(dense, Dag.complete(3), 2, ties=ties, method="gradient", restarts=5)
    assert relative_error(tensor, dense) < 1e-6
    assert report.converged


@pytest.mark.parametrize("method", ["als", "gradient"])
@pytest.mark.parametrize("ties", ["node", "global"])
@pytest.mark.parametrize(
    "dag",
    [
        Dag.path(1),
        Dag.path(4),
        Dag([(2, 3), (0, 1), (1, 2)]),
        Dag.complete(2),
        Dag.complete(3),
        DIAMOND,
    ],
    ids=str,
)
def test_every_method_on_every_kind_of_dag(dag, ties, method):
    """Data that no network of rank 2 has exactly: the error falls, and is that of the result."""
    shape = [3 + k % 2 for k in range(len(dag.edges))]
    dense = torch.randn(shape, generator=generator(2), dtype=torch.float64)
    options = {"ties": ties, "method": method, "restarts": 1, "max_sweeps": 8}
    tensor, report = decompose(dense, dag, 2, **options)
    assert relative_error(tensor, dense) == pytest.approx(report.error, abs=1e-9)
    assert report.error <= report.errors[0]
    assert report.error < 1


def function_on_a_grid() -> Tensor:
    x = torch.linspace(0, 2, 8, dtype=torch.float64)
    a, b, c, d = torch.meshgrid(x, x, x, x, indexing="ij")
    return 1 / (1 + a + b * c) + torch.sin(a * d + c)


def video() -> Tensor:
    """A bright disc that moves over a shaded background: (time, height, width)."""
    t, y, x = torch.meshgrid(*(torch.arange(n).double() for n in (12, 20, 24)), indexing="ij")
    disc = ((y - 4 - t) ** 2 + (x - 3 - 1.5 * t) ** 2 < 16).double()
    return disc + 0.2 * torch.cos(y / 5) * torch.sin(x / 7)


def noisy_train() -> Tensor:
    dense = dense_of(free(Dag.path(5), 5, 3, seed=3))
    noise = torch.randn(dense.shape, generator=generator(4), dtype=torch.float64)
    return dense + 0.1 * noise * dense.norm() / noise.norm()


def random_tensors() -> list[Tensor]:
    shapes = [(4, 5, 6), (3, 4, 3, 4), (2, 3, 4, 3, 2), (6, 2, 6, 2), (8, 8)]
    return [
        torch.randn(shapes[seed % 5], generator=generator(seed), dtype=torch.float64)
        for seed in range(20)
    ]


@pytest.mark.slow
def test_a_path_is_at_least_as_good_as_tensorly(tensorly):
    structured = [function_on_a_grid(), video(), noisy_train()]
    for number, dense in enumerate(random_tensors() + structured):
        rank, order = 2 + number % 3, dense.ndim
        train = tensorly.decomposition.tensor_train(dense, [1, *[rank] * (order - 1), 1])
        theirs = float((train.to_tensor() - dense).norm() / dense.norm())
        tensor, report = decompose(dense, Dag.path(order), rank)
        assert tensor.shape == dense.shape
        assert relative_error(tensor, dense) <= theirs * (1 + 1e-9) + 1e-12, number
        assert report.restarts == 1


def test_rank_above_what_a_path_can_use():
    dense = torch.randn(3, 4, 2, generator=generator(0), dtype=torch.float64)
    tensor, report = decompose(dense, Dag.path(3), rank=7)
    assert tensor.structure.ranks == (7, 7)
    assert relative_error(tensor, dense) < 1e-12
    assert report.errors[0] < 1e-12


def test_one_edge_and_rank_one():
    vector = torch.randn(5, generator=generator(0), dtype=torch.float64)
    assert relative_error(decompose(vector, Dag.path(1), rank=1)[0], vector) < 1e-12
    dense = dense_of(free(Dag.complete(2), 4, 1, seed=2))
    assert relative_error(decompose(dense, Dag.complete(2), rank=1)[0], dense) < 1e-9


def test_report():
    dense = torch.randn(3, 3, 3, 3, 3, 3, generator=generator(0), dtype=torch.float64)
    tensor, report = decompose(dense, Dag.complete(3), 2, restarts=2, seed=7)
    assert isinstance(report, Report)
    assert report.seed == 7
    assert report.restarts == 2
    assert report.converged
    assert report.seconds > 0
    assert all(b <= a + 1e-12 for a, b in pairwise(report.errors))
    assert report.error == pytest.approx(relative_error(tensor, dense), rel=1e-9)
    assert f"{report.error:.2e}" in str(report)
    assert f"error={report.error}, converged=True" in repr(report)
    with pytest.raises(AttributeError):
        report.seed = 8


def test_stops_at_max_sweeps():
    dense = torch.randn(3, 3, 3, generator=generator(0), dtype=torch.float64)
    _, report = decompose(dense, Dag.path(3), 2, ties="global", restarts=1, max_sweeps=2)
    assert len(report.errors) == 3
    assert not report.converged
    assert "max_sweeps" in str(report)


@pytest.mark.slow
def test_more_restarts_are_never_worse():
    dense = torch.randn(3, 3, 3, 3, 3, 3, generator=generator(1), dtype=torch.float64)
    errors = [decompose(dense, Dag.complete(3), 2, restarts=n)[1].error for n in (1, 2, 3)]
    assert errors[0] >= errors[1] >= errors[2]


@pytest.mark.parametrize("method", ["als", "gradient"])
def test_the_seed_fixes_the_result(method):
    dense = torch.randn(3, 3, 3, generator=generator(0), dtype=torch.float64)
    options = {"ties": "global", "method": method, "restarts": 1, "max_sweeps": 5}
    first, again, other = (
        decompose(dense, Dag.path(3), 2, seed=seed, **options)[0] for seed in (3, 3, 4)
    )
    for a, b in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(first.core_0, other.core_0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_is_kept(dtype):
    dense = dense_of(free(Dag.complete(3), 3, 2, seed=6)).to(dtype)
    tensor, report = decompose(dense, Dag.complete(3), 2, restarts=5)
    assert tensor.dtype == dtype
    assert tensor.parametrization == "free"
    assert relative_error(tensor, dense) < 1e-6
    assert report.restarts <= 5


def test_strides_gradients_and_scale_of_the_input_do_not_matter():
    dense = dense_of(free(Dag.path(3), 4, 2, seed=8))
    turned = dense.permute(2, 1, 0).contiguous().permute(2, 1, 0).requires_grad_()
    assert relative_error(decompose(turned, Dag.path(3), 2)[0], dense) < 1e-9
    for scale in (1e-200, 1e200):
        tensor, _ = decompose(dense * scale, Dag.path(3), 2)
        torch.testing.assert_close(dense_of(tensor) / scale, dense)


@pytest.mark.parametrize("method", ["als", "gradient"])
def test_inference_mode_does_not_matter(method):
    with torch.inference_mode():
        dense = torch.randn(3, 3, 3, generator=generator(0), dtype=torch.float64)
        options = {"ties": "global", "restarts": 1, "method": method, "max_sweeps": 20}
        tensor, _ = decompose(dense, Dag.path(3), 2, **options)
    expected, _ = decompose(dense.clone(), Dag.path(3), 2, **options)
    torch.testing.assert_close(tensor.to_dense(), expected.to_dense())
    tensor.to_dense().sum().backward()  # the network can be trained


def test_zeros():
    tensor, report = decompose(torch.zeros(3, 3, 3), Dag.path(3), 2, ties="global")
    assert not dense_of(tensor).any()
    assert report.converged


def test_progress_bar_only_when_asked(capsys, monkeypatch):
    monkeypatch.setattr("tensus_tn.fitting.report._DELAY", 0.0)
    dense = torch.randn(3, 3, 3, generator=generator(0), dtype=torch.float64)
    for progress, shown in [(None, False), (False, False), (True, True)]:
        decompose(dense, Dag.path(3), 2, ties="global", max_sweeps=3, progress=progress)
        assert ("sweep" in capsys.readouterr().err) == shown


@pytest.mark.parametrize(
    ("dense", "error", "message"),
    [
        (torch.ones(2, 2), ValueError, "order 2.*3 edges"),
        (torch.ones(2, 2, 2, dtype=torch.long), TypeError, "floating-point.*int64"),
        ([[1.0]], TypeError, "dense must be a tensor or an array, got list"),
        (torch.ones(2, 2, 2).to_sparse(), TypeError, "dense tensor, got torch.sparse_coo"),
        (torch.tensor([[[1.0, float("nan")]]]), ValueError, r"finite, got nan at \[0, 0, 1\]"),
        (torch.tensor([[[float("inf"), 1.0]]]), ValueError, "finite, got inf"),
        (torch.ones(2, 0, 2), ValueError, "choices of edge"),
    ],
)
def test_bad_data(dense, error, message):
    with pytest.raises(error, match=message):
        decompose(dense, Dag.path(3), 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 0}, "rank.*positive integer, got 0"),
        ({"rank": {1: 2}}, "nothing for inner node 2"),
        ({"method": "newton"}, "method must be"),
        ({"ties": "edge"}, "ties must be"),
        ({"restarts": 0}, "restarts must be"),
        ({"max_sweeps": 0}, "max_sweeps must be"),
        ({"tol": -1.0}, "tol must be"),
        ({"tol": float("nan")}, "tol must be"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        decompose(torch.ones(2, 2, 2), Dag.path(3), **({"rank": 2} | options))


def test_arrays_and_what_numpy_makes_of_the_result():
    dense = function_on_a_grid().numpy()
    for array in (dense, dense.astype("float32"), dense[::-1], np.asfortranarray(dense)):
        array.setflags(write=False)
        tensor, report = decompose(array, Dag.path(4), 3)
        expected, _ = decompose(torch.from_numpy(array.copy()), Dag.path(4), 3)
        back = np.asarray(tensor)
        assert back.dtype == array.dtype
        np.testing.assert_array_equal(back, expected.to_dense().detach().numpy())
        assert np.linalg.norm(back - array) == pytest.approx(
            report.error * np.linalg.norm(array), rel=1e-4
        )


@pytest.mark.parametrize("method", ["als", "gradient"])
@pytest.mark.parametrize("init", ["svd", "random"])
def test_a_mask_leaves_entries_out(init, method):
    dense = dense_of(free(Dag.path(3), 6, 2, seed=1))
    seen = torch.rand(dense.shape, generator=generator(0)) < 0.7
    holes = dense.masked_fill(~seen, float("nan"))
    options = {"init": init, "method": method, "restarts": 5}
    tensor, report = decompose(holes, Dag.path(3), 2, mask=seen, **options)
    assert relative_error(tensor, dense) < 1e-5
    difference = (dense_of(tensor) - dense)[seen].norm() / dense[seen].norm()
    assert report.error == pytest.approx(float(difference), abs=1e-9)
    again, _ = decompose(holes.numpy(), Dag.path(3), 2, mask=seen.numpy(), **options)
    assert torch.equal(again.core_0, tensor.core_0)


def test_a_mask_against_tensorly(tensorly):
    """CP with a third of the entries missing: no worse at what was not seen."""
    dense = dense_of(free(Dag.path(3), 8, 2, ties="global", seed=4))
    seen = torch.rand(dense.shape, generator=generator(1)) < 0.67
    theirs = tensorly.decomposition.parafac(
        dense * seen, 2, mask=seen.double(), n_iter_max=200, init="random", random_state=0
    )
    error = (tensorly.cp_to_tensor(theirs) - dense)[~seen].norm()
    tensor, _ = decompose(dense, Dag.path(3), 2, ties="global", mask=seen, restarts=3)
    assert (dense_of(tensor) - dense)[~seen].norm() <= error + 1e-6


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(2, 2), "mask must be booleans of the shape"),
        (torch.ones(2, 2, 2), "mask must be booleans of the shape"),
        (torch.zeros(2, 2, 2, dtype=torch.bool), "mask leaves no entry"),
    ],
)
def test_bad_masks(mask, message):
    with pytest.raises(ValueError, match=message):
        decompose(torch.ones(2, 2, 2), Dag.path(3), 2, mask=mask)


def test_a_fit_can_go_on_where_another_ended():
    dense = torch.randn(3, 3, 3, 3, 3, 3, generator=generator(0), dtype=torch.float64)
    first, report = decompose(dense, Dag.complete(3), 2, max_sweeps=3)
    _, more = decompose(dense, Dag.complete(3), 2, init=first)
    assert more.errors[0] == pytest.approx(report.error)
    assert more.error < report.error


@pytest.mark.parametrize("method", ["als", "gradient"])
@pytest.mark.parametrize(("dag", "ties"), [(Dag.path(3), "node"), (Dag.complete(2), "global")])
def test_fixed_cores_stay_and_the_others_fit(dag, ties, method):
    truth = free(dag, 4, 2, ties=ties, seed=1)
    dense, fixed = 7 * dense_of(truth), list(dag.edges[:2])
    start = free(dag, 4, 2, ties=ties, seed=2)
    with torch.no_grad():
        for edge, core in enumerate(start.parameters()):
            if dag.edges[edge] in fixed:
                core.copy_(list(truth.parameters())[edge])
    tensor, report = decompose(
        dense, dag, 2, ties=ties, method=method, init=start, fixed=fixed, max_sweeps=50
    )
    for edge in fixed:
        assert torch.equal(tensor.cores()[edge], start.cores()[edge])
    assert relative_error(tensor, dense) < 1e-6  # linear in the one core that is left
    assert report.error == pytest.approx(relative_error(tensor, dense), abs=1e-9)
    noise = dense + torch.randn(dense.shape, generator=generator(3), dtype=torch.float64)
    several, report = decompose(noise, dag, 2, ties=ties, init=start, fixed=fixed[:1], restarts=3)
    assert torch.equal(several.cores()[fixed[0]], start.cores()[fixed[0]])
    assert report.restarts == 3
    assert report.error == pytest.approx(relative_error(several, noise))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fixed": [(0, 1)]}, "fixed cores are those of init, which must be a DagTensor, got None"),
        ({"fixed": [(0, 9)], "init": free(Dag.path(3), 2, 2)}, r"fixed names \(0, 9\)"),
        ({"fixed": Dag.path(3).edges, "init": free(Dag.path(3), 2, 2)}, "all edges are fixed"),
        ({"nonnegative": True, "method": "gradient"}, "by method 'als', not 'gradient'"),
        ({"nonnegative": True, "init": free(Dag.path(3), 2, 2)}, "init has negative cores"),
        ({"init": free(Dag.path(3), 2, 2, dtype=torch.cdouble)}, "init has complex cores"),
    ],
)
def test_bad_constraints(options, message):
    with pytest.raises(ValueError, match=message):
        decompose(torch.ones(2, 2, 2), Dag.path(3), 2, **options)


KINDS = [
    (Dag.path(1), "node"),
    (Dag.path(4), "node"),
    (Dag.path(4), "global"),
    (Dag.complete(3), "node"),
    (Dag.complete(2), "global"),
    (DIAMOND, "node"),
]


@pytest.mark.parametrize("init", ["svd", "random"])
@pytest.mark.parametrize(("dag", "ties"), KINDS)
def test_nonnegative_cores_on_every_kind_of_dag(dag, ties, init):
    shape = [3 + k % 2 for k in range(len(dag.edges))]
    dense = torch.rand(shape, generator=generator(2), dtype=torch.float64)
    options = {"ties": ties, "init": init, "max_sweeps": 20}
    tensor, report = decompose(dense, dag, 2, nonnegative=True, **options)
    assert all(bool((core >= 0).all()) for core in tensor.parameters())
    assert report.error == pytest.approx(relative_error(tensor, dense), abs=1e-9)
    assert all(b <= a + 1e-12 for a, b in pairwise(report.errors))
    assert report.error < 0.6
    seen = torch.rand(shape, generator=generator(3)) < 0.8
    masked, _ = decompose(dense, dag, 2, nonnegative=True, mask=seen, **options)
    assert all(bool((core >= 0).all()) for core in masked.parameters())
    assert relative_error(masked, dense) < 0.9


@pytest.mark.slow
def test_nonnegative_cp_is_as_good_as_that_of_tensorly(tensorly):
    """Tensors with noise, the same sweeps for both, each from its own random start."""
    ours, theirs = [], []
    for seed in range(4):
        factors = [torch.rand(8, 3, generator=generator(10 * seed + k)).double() for k in range(3)]
        dense = torch.einsum("ar,br,cr->abc", *factors)
        dense += 0.05 * torch.rand(dense.shape, generator=generator(seed)).double()
        _, errors = tensorly.decomposition.non_negative_parafac_hals(
            dense, 3, n_iter_max=100, init="random", random_state=seed, return_errors=True
        )
        _, report = decompose(
            dense, Dag.path(3), 3, ties="global", nonnegative=True, seed=seed, max_sweeps=100
        )
        ours.append(report.error)
        theirs.append(float(errors[-1]))
    assert sum(ours) <= sum(theirs) * 1.01, (ours, theirs)


def test_nonnegative_data_are_recovered():
    cores = [core.abs() for core in free(Dag.path(3), 6, 2, ties="global", seed=5).parameters()]
    dense = DagTensor.from_cp(None, [core.detach().flatten(1) for core in cores]).to_dense()
    tensor, _ = decompose(
        dense.detach(), Dag.path(3), 2, ties="global", nonnegative=True, max_sweeps=500
    )
    assert relative_error(tensor, dense.detach()) < 1e-3


@pytest.mark.parametrize("method", ["als", "gradient"])
@pytest.mark.parametrize(("dag", "ties"), KINDS)
def test_complex_data_on_every_kind_of_dag(dag, ties, method):
    shape = [2 + k % 2 for k in range(len(dag.edges))]
    dense = torch.randn(shape, generator=generator(2), dtype=torch.complex128)
    options = {"ties": ties, "method": method, "max_sweeps": 10}
    tensor, report = decompose(dense, dag, 2, **options)
    assert tensor.dtype == torch.complex128
    assert relative_error(tensor, dense) == pytest.approx(report.error, abs=1e-9)
    assert report.error <= report.errors[0]
    assert report.error < 1
    seen = torch.rand(shape, generator=generator(3)) < 0.8
    _, masked = decompose(dense, dag, 2, mask=seen, **options)
    assert masked.error < 1


@pytest.mark.parametrize(("dag", "ties"), [(Dag.path(4), "node"), (Dag.complete(3), "node")])
def test_complex_networks_are_recovered(dag, ties):
    dense = dense_of(free(dag, 3, 2, ties=ties, seed=1, dtype=torch.cdouble))
    tensor, _ = decompose(dense, dag, 2, ties=ties, restarts=5)
    assert relative_error(tensor, dense) < 1e-6
    narrow, _ = decompose(dense.to(torch.cfloat).numpy(), dag, 2, ties=ties, restarts=5)
    assert np.asarray(narrow).dtype == np.complex64
    assert relative_error(narrow, dense) < 1e-5


def test_a_complex_train_is_at_least_as_good_as_that_of_tensorly(tensorly):
    dense = torch.randn(4, 5, 4, 3, generator=generator(0), dtype=torch.cdouble).numpy()
    with tensorly.backend_context("numpy"):
        train = tensorly.decomposition.tensor_train(dense, [1, 3, 3, 3, 1])
        error = np.linalg.norm(train.to_tensor() - dense)
    tensor, _ = decompose(dense, Dag.path(4), 3)
    assert np.linalg.norm(np.asarray(tensor) - dense) <= error * (1 + 1e-9)
