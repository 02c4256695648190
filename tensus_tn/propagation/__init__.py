"""Relation graphs, and the sparse propagation of rank-indexed states over them."""
