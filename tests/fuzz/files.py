"""Damaged files of graphs, data sets and checkpoints: a clear error, or a sound object."""

import io
import random
import tempfile
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from tensus_tn import RelationGraph, propagate
from tensus_tn._files import write_arrays
from tensus_tn.data import load
from tensus_tn.tasks import Config, make_task, restore, run
from tests.fuzz.damage import damaged_bytes, damaged_mapping

CLEAR = (ValueError, TypeError, OSError)


@cache
def samples() -> dict[str, bytes]:
    """A file of each kind, whole."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.npz"
        matrix = sp.csr_array([[0, 2.0, 0], [1.0, 0, 0], [0, 3.0, 1.0]])
        RelationGraph.from_scipy(
            {"A": matrix, "B": matrix.T}, normalize="row", self_loops=True, identity=True, zero=True
        ).save(path)
        graph = path.read_bytes()
        run(Config(topology="path", steps=2, hidden=4, epochs=1, progress=False, out=folder))
        checkpoint = (Path(folder) / "checkpoint.pt").read_bytes()
        return {"graph": graph, "map": graph, "data": data_set(), "checkpoint": checkpoint}


def data_set() -> bytes:
    """Authors 0-2, papers 3-6, conference 7, in our own format."""
    pa = np.array([[3, 0], [4, 0], [4, 1], [5, 1], [6, 2]])
    features = sp.csr_array(np.arange(16.0).reshape(8, 2))
    return npz_bytes({
        "node_type_names": np.array(["author", "paper", "conference"]),
        "type_offsets": np.array([0, 3, 7, 8]),
        "node_type": np.array([0, 0, 0, 1, 1, 1, 1, 2]),
        "diffmg_node_type": np.array([0, 0, 0, 1, 1, 1, 1, 2]),
        "relation_names": np.array(["PA", "AP"]),
        "rel_PA_src": pa[:, 0], "rel_PA_dst": pa[:, 1],
        "rel_AP_src": pa[:, 1], "rel_AP_dst": pa[:, 0],
        "labels": np.array([1, 0, 1, -1, -1, -1, -1, -1]),
        "train_idx": np.array([0]), "val_idx": np.array([1]), "test_idx": np.array([2]),
        "num_classes": np.array(2),
        "feat_data": features.data, "feat_indices": features.indices,
        "feat_indptr": features.indptr, "feat_shape": np.array(features.shape),
    })  # fmt: skip


def check(rng: random.Random) -> None:
    kind = rng.choice(list(samples()))
    content = samples()[kind]
    content = damaged_bytes(rng, content) if rng.random() < 0.4 else repacked(rng, kind, content)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / ("file.pt" if kind == "checkpoint" else "file.npz")
        path.write_bytes(content)
        try:
            USES[kind](path)
        except CLEAR as error:
            if not str(error):
                raise


def repacked(rng: random.Random, kind: str, content: bytes) -> bytes:
    """A file that is whole, with one value damaged."""
    if kind == "checkpoint":
        state = torch.load(io.BytesIO(content), weights_only=True)
        file = io.BytesIO()
        torch.save(damaged_mapping(rng, state), file)
        return file.getvalue()
    with np.load(io.BytesIO(content)) as arrays:
        return npz_bytes(damaged_mapping(rng, dict(arrays)), mapped=kind == "map")


def npz_bytes(arrays: dict[str, Any], mapped: bool = False) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.npz"
        as_arrays = {name: np.asarray(value) for name, value in arrays.items()}
        if mapped and not any(array.dtype.hasobject for array in as_arrays.values()):
            write_arrays(path, as_arrays)
        else:
            np.savez(path, **arrays)
        return path.read_bytes()


def use_map(path: Path) -> None:
    """What is mapped unseen may hold anything, but only an error comes of it."""
    graph = RelationGraph.load(path, mmap=True)
    with suppress(RuntimeError, IndexError):
        propagate(
            graph,
            torch.ones(graph.num_nodes, 1, 3, dtype=graph.dtype),
            torch.ones(graph.num_relations, 1, 1, dtype=graph.dtype),
        )
    use_graph(path, mmap=True, verify=True)


def use_graph(path: Path, **way: bool) -> None:
    """What loads also propagates, as its matrices say, and could have been built."""
    graph = RelationGraph.load(path, **way)
    assert len(set(graph.relation_names)) == graph.num_relations
    matrices = graph.to_scipy()
    assert all(np.isfinite(matrix.data).all() for matrix in matrices.values())
    if graph.num_nodes > 1000:
        return
    h = torch.randn(graph.num_nodes, 1, 3, dtype=graph.dtype)
    w = torch.randn(graph.num_relations, 1, 1, dtype=graph.dtype)
    want = torch.zeros_like(h[:, 0])
    for weight, matrix in zip(w.flatten(), matrices.values(), strict=True):
        want += weight * torch.from_numpy(matrix.astype(h[:, 0].numpy().dtype) @ h[:, 0].numpy())
    # A folded self-loop is taken out again where a pair has one of its own: errors are relative to it.
    scale = 1.0 if graph.loop is None else max(1.0, float(graph.loop.abs().max()))
    torch.testing.assert_close(propagate(graph, h, w)[:, 0] / scale, want / scale)


def use_data(path: Path) -> None:
    data = load(path)
    assert repr(data)
    make_task(data, "row")


def use_checkpoint(path: Path) -> None:
    config, model = restore(path)
    assert isinstance(config, Config)
    assert sum(parameter.numel() for parameter in model.parameters()) > 0


USES = {"graph": use_graph, "map": use_map, "data": use_data, "checkpoint": use_checkpoint}
