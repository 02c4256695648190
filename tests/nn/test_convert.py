"""DGL heterographs: by what they can be asked, and real ones where DGL can be imported."""

import pytest
import torch

from tensus_tn.nn import MetaGraphConv
from tensus_tn.nn.convert import dgl_metadata

COUNTS = {"author": 4, "paper": 3, "venue": 1}
EDGES = {
    ("author", "writes", "paper"): (torch.tensor([0, 1, 1, 3]), torch.tensor([0, 0, 1, 2])),
    ("paper", "in", "venue"): (torch.tensor([0, 2]), torch.tensor([0, 0])),
}


class Heterograph:
    """The part of a DGLGraph that is used."""

    canonical_etypes, ntypes = list(EDGES), list(COUNTS)

    def num_nodes(self, ntype):
        return COUNTS[ntype]

    def edges(self, etype):
        return EDGES[etype]


def real_heterograph():
    try:  # a DGL for another torch fails in many ways
        import dgl

        return dgl.heterograph(EDGES, num_nodes_dict=COUNTS)
    except Exception as error:
        pytest.skip(f"DGL does not run here: {error!r}")


@pytest.mark.parametrize("make", [Heterograph, real_heterograph])
def test_a_dgl_graph_gives_what_its_edges_give(make):
    graph = make()
    assert dgl_metadata(graph) == (list(COUNTS), list(EDGES))
    conv = MetaGraphConv(5, 8, dgl_metadata(graph), target="paper")
    x = {kind: torch.randn(count, 5) for kind, count in COUNTS.items()}
    expected = conv(x, {kind: torch.stack(ends) for kind, ends in EDGES.items()})
    for form in (graph, conv.relation_graph(graph)):
        out = conv(x, form)
        assert list(out) == list(COUNTS)
        for kind in COUNTS:
            torch.testing.assert_close(out[kind], expected[kind])
    with pytest.raises(ValueError, match="'paper': 2"):
        conv({**x, "paper": x["paper"][:2]}, graph)
