"""Benchmarks against other libraries: ``python -m benchmarks.tensor`` and ``.propagate``."""
