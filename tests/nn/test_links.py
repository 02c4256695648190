"""Which links are on a path from source to sink."""

import pytest
import torch

from tensus_tn.nn import links
from tests.nn.meta_graphs import DAGS


@pytest.mark.parametrize("dag", DAGS.values(), ids=DAGS)
def test_useful_links_are_those_on_a_path(dag):
    for seed in range(20):
        g = torch.Generator().manual_seed(seed)
        kept = [edge for edge in dag.edges if torch.rand((), generator=g) < 0.6]
        relations = {edge: "A" if edge in kept else "zero" for edge in dag.edges}

        def paths(node, kept=kept):
            if node == dag.sink:
                return [()]
            return [(e, *rest) for e in kept if e[0] == node for rest in paths(e[1])]

        expected = {edge for path in paths(dag.source) for edge in path}
        found = links.useful_links(dag, relations)
        assert {edge for _, edges in found for edge in edges} == expected
