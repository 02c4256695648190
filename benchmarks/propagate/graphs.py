"""The graphs that are measured: the real ones of the paper's experiments, and synthetic ones."""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch

from tensus_tn.propagation.relation_graph import RelationGraph

DATA = Path(os.environ.get("TENSUS_DATA", "data"))
REAL = {
    "dblp": "gtn_dblp",
    "acm": "gtn_acm",
    "imdb": "gtn_imdb",
    "amazon": "rec_amazon",
    "yelp": "rec_yelp",
    "douban": "rec_douban_partial",
}
SYNTHETIC = {  # nodes, edges, relations
    "tiny": (60, 300, 3),
    "small": (1500, 6_000, 4),
    "dblp-shape": (18_405, 67_946, 4),
    "douban-shape": (37_595, 3_430_000, 11),
}
NORMALISATIONS = ("diffmg", "plain")


@dataclass(frozen=True)
class Problem:
    """A graph as tensus_tn holds it, and as the matrices that every peer starts from."""

    name: str
    graph: RelationGraph

    @cached_property
    def matrices(self) -> list[sp.csr_array]:
        """What each relation applies (N x N, float32), the identity and the zero relation apart."""
        named = self.graph.to_scipy()
        return [named[name] for name in self.graph.relation_names[: self.num_sparse]]

    @property
    def num_sparse(self) -> int:
        return sum(name not in ("identity", "zero") for name in self.graph.relation_names)

    @property
    def has_identity(self) -> bool:
        return "identity" in self.graph.relation_names


def available() -> list[str]:
    return [name for name, file in REAL.items() if (DATA / f"{file}.npz").exists()]


def load(name: str, normalisation: str = "diffmg", degree: float | None = None) -> Problem:
    """A real graph, or a synthetic one (of another mean degree on request)."""
    if name in REAL:
        edges, num_nodes = _real(REAL[name])
    else:
        num_nodes, num_edges, relations = SYNTHETIC[name]
        num_edges = num_edges if degree is None else int(degree * num_nodes)
        edges = _random(num_nodes, num_edges, relations)
    if normalisation == "plain":
        graph = RelationGraph.from_edge_index(edges, num_nodes)
    else:  # D^-1 (A + I); D^-1/2 (A + I) D^-1/2 between users; then the identity and zero
        modes = {name: "sym" if name == "UU" else "row" for name in edges}
        graph = RelationGraph.from_edge_index(
            edges, num_nodes, normalize=modes, self_loops=True, identity=True, zero=True
        )
    return Problem(f"{name}/{normalisation}", graph)


def _real(file: str) -> tuple[dict[str, torch.Tensor], int]:
    """The relations of a data set as edge_index tensors (sender, receiver), global ids."""
    with np.load(DATA / f"{file}.npz", allow_pickle=False) as data:
        if file.startswith("gtn"):
            return {
                name: _index(data[f"rel_{name}_dst"], data[f"rel_{name}_src"])
                for name in data["relation_names"].tolist()
            }, int(data["num_nodes"])
        starts = data["diffmg_type_offsets"][:-1]
        offset = dict(zip(data["node_type_names"].tolist(), starts, strict=True))
        edges = {}
        for name, kinds in zip(
            data["relation_names"].tolist(), data["relation_types"], strict=True
        ):
            pairs = np.stack([data[f"rel_{name}_src"], data[f"rel_{name}_dst"]])
            if "diffmg_keep_pairs" in data and name in ("UI", "UB"):
                pairs = data["diffmg_keep_pairs"].T
            here, there = (ids + offset[kind] for ids, kind in zip(pairs, kinds, strict=True))
            if kinds[0] == kinds[1]:
                both = np.concatenate([[here, there], [there, here]], axis=1)
                edges[name] = _index(*np.unique(both, axis=1))
            else:
                edges[name] = _index(there, here)
                edges[f"{name} reversed"] = _index(here, there)
        return edges, int(data["diffmg_type_offsets"][-1])


def _random(num_nodes: int, num_edges: int, relations: int) -> dict[str, torch.Tensor]:
    """About as many edges as asked for: no duplicates and no self-loops, as in the real graphs."""
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(num_nodes, (relations, 2, num_edges // relations), generator=generator)
    return {f"r{i}": e[:, e[0] != e[1]].unique(dim=1) for i, e in enumerate(index)}


def _index(sender: np.ndarray, receiver: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.stack([sender, receiver]).astype(np.int64))
