"""Every block of docs/recipes.md runs, one after the other, against the real libraries."""

import re
from pathlib import Path

import pytest
import torch

pytest.importorskip("torch_geometric")

RECIPES = Path(__file__).parents[2] / "docs" / "recipes.md"
BLOCKS = re.findall(r"```python\n(.*?)```", RECIPES.read_text(), flags=re.DOTALL)


@pytest.fixture(scope="module")
def names():
    """What the blocks define."""
    torch.manual_seed(0)
    return {"__name__": "recipes"}


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_runs(names, number):
    exec(compile(BLOCKS[number], f"{RECIPES}:{number}", "exec"), names)


def test_the_results_are_what_the_text_says(names):
    assert len(BLOCKS) >= 10
    conv, data, paths = names["model"].conv, names["data"], names["paths"]
    converted = conv(data.x_dict, conv.relation_graph(data))
    for kind, h in conv(data.x_dict, data.edge_index_dict).items():
        torch.testing.assert_close(converted[kind], h)
    assert {"APA", "APVPA"} <= {path.letters() for path in paths}
    assert names["out"].shape == (20, 3)
    assert names["score"].shape == (2,)


def test_hgt_and_the_layer_take_and_return_the_same(names):
    from torch_geometric.nn import HGTConv

    data = names["data"]
    for layer in (HGTConv, names["MetaGraphConv"]):
        conv = layer(16, 32, data.metadata(), heads=2)
        out = conv(data.x_dict, data.edge_index_dict)
        assert {kind: tuple(h.shape) for kind, h in out.items()} == {
            "author": (40, 32),
            "paper": (80, 32),
            "venue": (5, 32),
        }


def test_neighbor_loader(names):
    from torch_geometric.loader import NeighborLoader
    from torch_geometric.typing import WITH_PYG_LIB, WITH_TORCH_SPARSE

    if not (WITH_PYG_LIB or WITH_TORCH_SPARSE):
        pytest.skip("NeighborLoader needs pyg-lib or torch-sparse")
    data = names["data"]
    loader = NeighborLoader(data, [5, 5], input_nodes="author", batch_size=16)
    net = names["MetaGraphNet"](
        dict.fromkeys(data.node_types, 16), 32, 3, data.metadata(), "author"
    )
    sizes = [
        net(batch.x_dict, batch.edge_index_dict)[: batch["author"].batch_size].shape
        for batch in loader
    ]
    assert sizes == [(16, 3), (16, 3), (8, 3)]
