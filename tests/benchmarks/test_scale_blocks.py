"""The benchmark of blocks: its tables have the rows that they should, on a small graph."""

import pytest

from benchmarks.scale import blocks
from tensus_tn import RelationGraph


def test_blocks_and_files_are_measured(tmp_path):
    graph = blocks.random_graph("dblp")
    assert graph.num_nodes == 18405
    times = blocks.files(graph, tmp_path / "graph.npz")
    assert list(times) == ["save", "map", "map and verify", "read"]
    mapped = RelationGraph.load(tmp_path / "graph.npz", mmap=True)
    row = blocks.blocks(mapped, ("dblp", 2, [2, 2], 16), seconds=0.01)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[:4] == ["dblp", "2", "2,2", "16"]
    assert len(cells) == 10
    assert all(float(cell.replace(",", "")) >= 0 for cell in cells[4:])


def test_the_loader_of_pyg_is_measured():
    typing = pytest.importorskip("torch_geometric.typing")
    if not (typing.WITH_PYG_LIB or typing.WITH_TORCH_SPARSE):
        pytest.skip("PyG's NeighborLoader needs pyg-lib or torch-sparse")
    row = blocks.loader(("dblp", 1, [2], 16), seconds=0.01)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[:3] == ["dblp", "2", "16"]
    assert all(int(cell.replace(",", "")) > 0 for cell in cells[3:5])
    assert len(cells) == 9


def test_sizes_of_large_graphs():
    rows = [line.strip("| ").split(" | ") for line in blocks.sizes().splitlines()]
    assert [(row[0], row[3]) for row in rows] == [
        (name, machines) for name in ("ogbn-mag", "MAG240M") for machines in ("1", "8", "8")
    ]
    assert all(float(row[-1]) > float(row[-2]) for row in rows)
