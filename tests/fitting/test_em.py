"""fit_em: monotone, counts against enumeration, known maxima, and bad input."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
import torch

from tensus_tn import Dag, DagTensor, LikelihoodReport, fit_em
from tensus_tn.fitting.em import expected_counts
from tests.network.networks import operands


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def network(dag: Dag, choices=3, rank=2, *, seed=0, **options) -> DagTensor:
    options = {"dtype": torch.float64} | options
    return DagTensor(dag, choices, rank, generator=generator(seed), **options)


GRAPHS = [Dag.path(4), Dag.complete(3), Dag([(0, 1), (0, 2), (1, 3), (2, 3)])]


@pytest.mark.parametrize("dag", GRAPHS)
@pytest.mark.parametrize("ties", ["node", "global"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_sweep_lowers_the_likelihood(dag, ties, dtype):
    samples = network(dag, rank=3, init_scale=2.0, seed=1).sample(400, generator=generator(2))
    start = network(dag, rank=3, ties=ties, seed=3, dtype=dtype)
    tensor, report = fit_em(samples, start, max_sweeps=60)
    values = report.log_likelihoods
    assert all(b >= a - 1e-12 for a, b in pairwise(values))
    assert values[-1] > values[0] + 0.01
    assert tensor.dtype == dtype
    assert tensor.ties == start.ties
    assert float(start.log_prob(samples).detach().mean()) == pytest.approx(values[0], abs=1e-5)
    assert float(tensor.log_prob(samples).detach().mean()) == pytest.approx(values[-1], abs=1e-5)


def test_impossible_samples_are_named_and_those_without_weight_left_out():
    start = network(Dag.path(2), seed=1)
    with torch.no_grad():
        start.core_0[0] = -float("inf")
    samples = torch.tensor([[0, 0], [1, 1]])
    with pytest.raises(ValueError, match=r"sample \[0, 0\] no probability"):
        fit_em(samples, start)
    _, report = fit_em(samples, start, weights=torch.tensor([0.0, 1.0]))
    assert report.log_likelihood > -10


def test_counts_are_posteriors_summed_over_the_samples():
    tensor = network(Dag.complete(3), seed=4)
    rows = tensor.sample(20, generator=generator(5))
    shares = torch.rand(20, generator=generator(6), dtype=torch.float64)
    counts, value = expected_counts(tensor, rows, shares)
    cores, ranks = [c.detach() for c in operands(tensor)], tensor.structure.core_ranks
    expected = [torch.zeros_like(core) for core in cores]
    total = 0.0
    for row, share in zip(rows.tolist(), shares, strict=True):
        joint = {}
        for states in product(range(2), repeat=2):
            at = [(i, *(states[r] for r in own)) for i, own in zip(row, ranks, strict=True)]
            joint[tuple(at)] = torch.stack([c[a] for c, a in zip(cores, at, strict=True)]).prod()
        evidence = sum(joint.values())
        total += float(share * (evidence / 4).log())
        for at, probability in joint.items():
            for e, a in enumerate(at):
                expected[e][a] += share * probability / evidence
    assert value == pytest.approx(total + float((shares.sum() - 1) * torch.tensor(4.0).log()))
    for count, other in zip(counts, expected, strict=True):
        torch.testing.assert_close(count, other)


def test_rank_one_gives_the_frequencies_in_one_sweep():
    samples = torch.tensor([[0, 1], [0, 2], [0, 1], [2, 0]])
    tensor, report = fit_em(samples, network(Dag.path(2), rank=1))
    first, second = (core.detach().flatten() for core in tensor.cores().values())
    torch.testing.assert_close(first, torch.tensor([0.75, 0.0, 0.25], dtype=torch.float64))
    torch.testing.assert_close(second, torch.tensor([0.25, 0.5, 0.25], dtype=torch.float64))
    assert len(report.log_likelihoods) == 3  # the second sweep finds nothing to do
    assert report.converged


def test_reaches_the_likelihood_of_the_truth():
    truth = network(Dag.complete(3), init_scale=2.0, seed=7)
    samples = truth.sample(3000, generator=generator(8))
    goal = float(truth.log_prob(samples).detach().mean())
    reports = [fit_em(samples, network(Dag.complete(3), seed=s))[1] for s in range(4)]
    assert max(report.log_likelihood for report in reports) > goal - 1e-3


def test_weights_are_repetitions():
    rows = torch.tensor([[0, 1, 2], [1, 1, 0], [2, 0, 1]])
    start = network(Dag.path(3), seed=9)
    repeated = rows.repeat_interleave(torch.tensor([1, 2, 3]), dim=0)
    weighted, report = fit_em(rows, start, weights=torch.tensor([0.5, 1.0, 1.5]), max_sweeps=5)
    counted, other = fit_em(repeated, start, max_sweeps=5)
    assert report.log_likelihoods == pytest.approx(other.log_likelihoods)
    torch.testing.assert_close(weighted.to_dense(), counted.to_dense())


def test_pieces_add_up(monkeypatch):
    tensor = network(Dag.complete(3))
    rows = tensor.sample(50, generator=generator(1))
    shares = torch.full((50,), 1 / 50, dtype=torch.float64)
    counts, value = expected_counts(tensor, rows, shares)
    monkeypatch.setattr("tensus_tn.fitting.em._PIECE", 7)
    pieces, other = expected_counts(tensor, rows, shares)
    assert value == pytest.approx(other)
    for a, b in zip(counts, pieces, strict=True):
        torch.testing.assert_close(a, b)


def test_the_start_is_not_changed_and_long_paths_do_not_underflow():
    start = network(Dag.path(150), choices=200)
    before = start.core_0.detach().clone()
    samples = start.sample(20, generator=generator(0))
    assert not start.log_prob(samples).exp().any()
    tensor, report = fit_em(samples, start, max_sweeps=3)
    assert torch.equal(start.core_0, before)
    assert all(parameter.isfinite().all() for parameter in tensor.parameters())
    assert report.log_likelihoods[-1] > report.log_likelihoods[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_inference_mode_does_not_matter(dtype):
    with torch.inference_mode():
        start = network(Dag.path(3), dtype=dtype)
        samples = start.sample(50, generator=generator(0))
        tensor, _ = fit_em(samples, start, max_sweeps=3)
    start = network(Dag.path(3), dtype=dtype)
    expected, _ = fit_em(samples.clone(), start, max_sweeps=3)
    torch.testing.assert_close(tensor.to_dense(), expected.to_dense())
    tensor.to_dense().sum().backward()  # the network can be trained


def test_report():
    start = network(Dag.path(3))
    samples = start.sample(50, generator=generator(0))
    _, report = fit_em(samples, start, max_sweeps=2)
    assert isinstance(report, LikelihoodReport)
    assert len(report.log_likelihoods) == 3
    assert not report.converged
    assert report.seconds > 0
    assert "max_sweeps" in str(report)
    assert report.log_likelihood == report.log_likelihoods[-1]
    assert f"log_likelihood={report.log_likelihood}, converged=False" in repr(report)


ROWS = torch.tensor([[0, 1], [1, 2]])


@pytest.mark.parametrize(
    ("index", "weights", "error", "message"),
    [
        (ROWS, torch.tensor([1.0, -1.0]), ValueError, "must not be negative, got -1"),
        (ROWS, torch.tensor([1.0, float("nan")]), ValueError, "weights must be finite"),
        (
            ROWS,
            torch.tensor([1, 1]),
            TypeError,
            "weights must be a floating-point or complex tensor",
        ),
        (ROWS, torch.ones(3), ValueError, r"index \(2, 2\) and weights \(3,\) disagree"),
        (ROWS, torch.zeros(2), ValueError, "nothing to fit"),
        (ROWS[:0], None, ValueError, "nothing to fit"),
        (ROWS + 2, None, ValueError, "out of range for 3 choices"),
        (ROWS[:, :1], None, ValueError, "expected an index"),
        (ROWS.float(), None, TypeError, "integers"),
        (ROWS.tolist(), None, TypeError, "an index must be a tensor of integers, got list"),
    ],
)
def test_bad_data(index, weights, error, message):
    with pytest.raises(error, match=message):
        fit_em(index, network(Dag.path(2)), weights=weights)


def test_bad_start_and_options():
    start = network(Dag.path(2))
    with pytest.raises(TypeError, match="must be a DagTensor, got Dag"):
        fit_em(ROWS, Dag.path(2))
    with pytest.raises(ValueError, match="softmax"):
        fit_em(ROWS, DagTensor(Dag.path(2), 3, 2, parametrization="free"))
    with pytest.raises(ValueError, match="max_sweeps"):
        fit_em(ROWS, start, max_sweeps=0)
    with pytest.raises(ValueError, match="tol"):
        fit_em(ROWS, start, tol=-1.0)
    with torch.no_grad():
        start.core_1[0] = float("nan")
    with pytest.raises(ValueError, match=r"\(1, 2\)"):
        fit_em(ROWS, start)
