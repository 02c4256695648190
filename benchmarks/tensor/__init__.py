"""Entries, sums, plans, decompositions against other libraries: `python -m benchmarks.tensor`."""
