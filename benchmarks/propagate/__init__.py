"""The fused propagation against its peers: `python -m benchmarks.propagate --help`."""
