"""Small graphs, and what a layer must compute on them, written out with dense matrices."""

import torch

from tensus_tn import Dag, RelationGraph
from tensus_tn.nn import MetaGraphConv

DAGS = {
    "one link": Dag.path(1),
    "path": Dag.path(3),
    "complete": Dag.complete(3),
    "named": Dag([("x", "b"), ("x", "a"), ("b", "y"), ("a", "b"), ("a", "c"), ("c", "y")]),
}
#: Sending type, receiving type.
TYPES = {"PA": ("A", "P"), "AP": ("P", "A"), "CP": ("P", "C"), "PC": ("C", "P")}


def random_graph(num_nodes=7, names=("PA", "AP", "X"), edges=9, **options):
    options = {"normalize": "row", "self_loops": True, "dtype": torch.float64, **options}
    index = {name: torch.randint(num_nodes, (2, edges)) for name in names}
    return RelationGraph.from_edge_index(index, num_nodes, identity=True, zero=True, **options)


def dense(graph):
    """{name: A} as dense matrices."""
    return {name: torch.tensor(a.toarray()) for name, a in graph.to_scipy().items()}


def sink_state(matrices, dag, h, relations, weights=None):
    """``H_k = sum_{j -> k} w_jk A^(i_jk) H_j``, state after state."""
    states = {dag.source: h}
    for node in dag.nodes[1:]:
        states[node] = sum(
            (1 if weights is None else weights[edge])
            * (matrices[relations[edge]] @ states[edge[0]])
            for edge in dag.edges
            if edge[1] == node
        )
    return states[dag.sink]


NAMES = ["PA", "AP", "X"]


def make_conv(dag=DAGS["complete"], rank=2, **options):
    return MetaGraphConv(5, 4, NAMES, dag=dag, rank=rank, **{"init_scale": 1.0, **options})


SIZES, COUNTS = {"A": 3, "P": 5, "C": 2}, {"A": 4, "P": 6, "C": 2}


def typed_graph():
    """Random edges of all relations of `TYPES` between `COUNTS` nodes."""
    edges = {}
    first = dict(zip(COUNTS, (0, 4, 10), strict=True))
    for name, (source, target) in TYPES.items():
        ends = [first[kind] + torch.randint(COUNTS[kind], (8,)) for kind in (source, target)]
        edges[name] = torch.stack(ends)
    return RelationGraph.from_edge_index(
        edges, 12, normalize="row", self_loops=True, identity=True, zero=True
    )
