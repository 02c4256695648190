"""What a fit says about itself."""

import pytest

from tensus_tn import LikelihoodReport, Report


def test_the_error_is_the_lowest_and_the_likelihood_the_last():
    report = Report((0.5, 0.1, 0.2), converged=False, seconds=0.25, seed=3, restarts=2)
    assert report.error == 0.1
    assert str(report) == (
        "relative error 1.00e-01 after 2 sweeps (stopped at max_sweeps), "
        "best of 2 starts, seed 3, 0.25 s"
    )
    with pytest.raises(AttributeError):
        report.seed = 8


def test_one_sweep_is_singular():
    report = LikelihoodReport((-3.0, -2.5), converged=True, seconds=0.25)
    assert report.log_likelihood == -2.5
    assert str(report) == "log-likelihood -2.5 per sample after 1 sweep (converged), 0.25 s"
