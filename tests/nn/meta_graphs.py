"""Small graphs, and what a layer must compute on them, written out with dense matrices."""

import torch

from tensus_tn import Dag, RelationGraph

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
