"""Fitting a tensor network: to a dense tensor, to observed entries, to counts."""
