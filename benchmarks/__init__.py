"""Benchmarks against other libraries: ``python -m benchmarks.tensor``, ``python -m benchmarks.propagate``."""
