"""Blocks: exact with whole neighbourhoods, right on average with fewer, the same for any threads."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from tensus_tn import Block, Dag, NeighborBlocks, RelationGraph, propagate_dag
from tensus_tn.propagation.blocks import draw_block
from tests.propagation.graphs import assert_same, assert_well_formed

COUNTS = {"a": 30, "b": 20, "c": 5, "none": 0}
TYPES = {("a", "to", "b"): 80, ("b", "back", "a"): 80, ("a", "in", "c"): 40, ("c", "of", "a"): 25}
OPTIONS = [
    {},
    {"identity": True, "zero": True},
    {"normalize": "row", "identity": True},
    {"normalize": "row", "self_loops": True, "identity": True, "zero": True},
    {"normalize": "sym", "self_loops": True},
]


def typed_graph(seed=0, weights=False, **options):
    generator = torch.Generator().manual_seed(seed)

    def ids(kind, size):
        return torch.randint(COUNTS[kind], (size,), generator=generator)

    edges = {key: torch.stack([ids(key[0], n), ids(key[2], n)]) for key, n in TYPES.items()}
    values = {key: torch.rand(n, generator=generator) for key, n in TYPES.items()}
    return RelationGraph.from_edge_index(
        edges, COUNTS, edge_weight=values if weights else None, **options
    )


def weights_of(graph, dag, rank=2, seed=1):
    generator = torch.Generator().manual_seed(seed)
    ranks = {node: 1 if node in (dag.source, dag.sink) else rank for node in dag.nodes}
    return {
        (j, k): torch.randn(
            graph.num_relations, ranks[j], ranks[k], generator=generator, dtype=graph.dtype
        )
        for j, k in dag.edges
    }


@pytest.mark.parametrize("seeds", [[], [3], [3, 3, 40, 3], list(range(55))])
@pytest.mark.parametrize("dag", [Dag.path(1), Dag.path(3), Dag.complete(3)])
@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("options", OPTIONS)
def test_whole_neighbourhoods_are_exact(options, weights, dag, seeds):
    """To the bits, where the passes are those of the whole graph: here they gather first."""
    graph, seeds = typed_graph(weights=weights, **options), torch.tensor(seeds, dtype=torch.int64)
    block = draw_block(graph, seeds, [-1] * graph.num_relations * (len(dag.nodes) - 1), 0)
    assert_well_formed(block.graph)
    h, w = (
        torch.randn(graph.num_nodes, 4, generator=torch.Generator().manual_seed(2)),
        weights_of(graph, dag),
    )
    want = propagate_dag(graph, dag, h, w)[seeds]
    assert torch.equal(block.nodes[block.rows], seeds)
    for rows in (block.rows, block.plan(dag)):
        got = propagate_dag(block.graph, dag, block.gather(h), w, rows=rows)
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    ones = {edge: torch.ones(graph.num_relations, 1, 1) for edge in dag.edges}
    got = propagate_dag(block.graph, dag, block.gather(h), ones, rows=block.rows)
    assert torch.equal(got, propagate_dag(graph, dag, h, ones)[seeds])


@pytest.mark.parametrize("options", OPTIONS)
def test_values_of_a_block_are_those_of_the_whole_graph(options):
    graph = typed_graph(weights=True, dtype=torch.float64, **options)
    block = draw_block(graph, torch.arange(10, 40), [-1] * graph.num_relations, 0)
    whole, part = graph.to_scipy(), block.graph.to_scipy()
    index = block.nodes.numpy()
    for name, matrix in part.items():
        expected = whole[name].toarray()[np.ix_(index, index)]
        np.testing.assert_array_equal(
            matrix.toarray()[block.rows.numpy()], expected[block.rows.numpy()]
        )


@pytest.mark.parametrize("options", OPTIONS)
def test_the_expected_result_is_that_of_the_whole_graph(options):
    """One hop is unbiased: the mean over many draws comes near, by its own standard error."""
    graph = typed_graph(weights=True, dtype=torch.float64, **options)
    dag, seeds = Dag.path(1), torch.arange(55)
    h, w = torch.randn(55, 2, dtype=torch.float64), weights_of(graph, dag)
    want = propagate_dag(graph, dag, h, w)
    draws = []
    for seed in range(400):
        block = draw_block(graph, seeds, [2] * graph.num_relations, seed)
        draws.append(propagate_dag(block.graph, dag, block.gather(h), w, rows=block.rows))
    results = torch.stack(draws)
    error = (results.mean(0) - want).abs()
    spread = results.std(0) / 20
    assert results.std(0).max() > 0.1  # something was left out
    assert (error <= 5 * spread + 1e-9).all()


def test_a_mean_over_neighbours_is_one_over_those_drawn():
    dense = torch.rand(30, 30, generator=torch.Generator().manual_seed(0)) < 0.2
    graph = RelationGraph.from_edge_index({"A": dense.nonzero().T}, 30, normalize="row")
    block = draw_block(graph, torch.arange(30), [2], 3)
    seg_ptr = block.graph.forward.seg_ptr
    assert int(seg_ptr.diff().max()) == 2
    sums = torch.zeros(len(seg_ptr) - 1).index_add(
        0, block.graph.forward.edge_seg(), block.graph.values()
    )
    torch.testing.assert_close(sums, torch.ones_like(sums))


def test_gradients_reach_the_values_of_the_whole_graph():
    graph = typed_graph(weights=True, dtype=torch.float64)
    values = graph.values().clone().requires_grad_()
    learned, dag = graph.with_values(values), Dag.path(2)
    h, w = torch.randn(55, 3, dtype=torch.float64), weights_of(graph, dag)
    seeds = torch.tensor([31, 2])
    (want,) = torch.autograd.grad(propagate_dag(learned, dag, h, w)[seeds].square().sum(), values)
    block = draw_block(learned, seeds, [-1] * 2 * graph.num_relations, 0)
    y = propagate_dag(block.graph, dag, block.gather(h), w, rows=block.rows)
    (got,) = torch.autograd.grad(y.square().sum(), values)
    torch.testing.assert_close(got, want)


def every(blocks):
    return [(block.nodes.tolist(), block.rows.tolist(), block.graph.values()) for block in blocks]


def assert_equal(first, second):
    assert len(first) == len(second)
    for (nodes, rows, values), (others, other_rows, other_values) in zip(
        first, second, strict=True
    ):
        assert (nodes, rows) == (others, other_rows)
        assert torch.equal(values, other_values)


@pytest.mark.parametrize("workers", [1, 3])
def test_threads_do_not_change_what_is_drawn(workers):
    def blocks(workers):
        generator = torch.Generator().manual_seed(4)
        return NeighborBlocks(
            typed_graph(normalize="row"), "a", [2, 3], 4, True, generator, workers=workers
        )

    assert_equal(every(blocks(workers)), every(blocks(0)))
    assert len(blocks(workers)) == 8
    first = next(iter(blocks(workers)))  # the others under way are left alone
    assert len(first.rows) == 4


def test_batches_hold_every_seed_once_in_a_new_order_each_time():
    generator = torch.Generator().manual_seed(0)
    blocks = NeighborBlocks(typed_graph(), ("a", torch.arange(3, 28)), [2], 4, True, generator)
    orders = [[n for block in blocks for n in block.nodes[block.rows].tolist()] for _ in range(2)]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(3, 28))
    assert orders[0] != orders[1]
    torch.manual_seed(3)
    plain = NeighborBlocks(typed_graph(), torch.arange(9), [2], 4)
    first = every(plain)
    assert [nodes for block in plain for nodes in block.nodes[block.rows].tolist()] == list(
        range(9)
    )
    torch.manual_seed(3)
    assert_equal(every(plain), first)


@pytest.mark.parametrize("world", [2, 3])
def test_processes_share_a_batch(world):
    """Together they have the seeds of one batch of the whole size, and the same edges at a node."""

    def seeds(rank, world, size):
        generator = torch.Generator().manual_seed(1)
        blocks = NeighborBlocks(typed_graph(), "a", [2], size, True, generator, rank, world)
        assert len(blocks) == -(-30 // (size * world))
        return [dict(zip(b.nodes[b.rows].tolist(), edges_of(b), strict=True)) for b in blocks]

    def edges_of(block):
        whole = block.graph.to_scipy()["b__back__a"].tocsr()
        return [block.nodes[whole[[row]].nonzero()[1]].tolist() for row in block.rows]

    parts = [seeds(rank, world, 4) for rank in range(world)]
    for number, batch in enumerate(seeds(0, 1, 4 * world)):
        together = {}
        for part in parts:
            together |= part[number]
        assert together == batch
    last = [len(part[-1]) for part in parts]
    assert max(last) - min(last) <= 1


def test_seeds_by_type_mask_and_id_are_the_same():
    graph = typed_graph()
    mask = torch.zeros(55, dtype=torch.bool)
    mask[30:50] = True
    ways = ["b", ("b", torch.arange(20)), mask, torch.arange(30, 50), torch.arange(30, 50).int()]
    for seeds in ways:
        assert_equal(every([first(graph, seeds)]), every([first(graph, torch.arange(30, 50))]))
    block = first(graph, "b")
    assert torch.equal(block.ids["b"][block.rows_of("b")], torch.arange(20))
    with pytest.raises(ValueError, match="some seeds are not of the type 'a'"):
        block.rows_of("a")
    x = {kind: torch.randn(count, 3) for kind, count in COUNTS.items()}
    gathered = block.gather(x)
    assert torch.equal(
        torch.cat(list(gathered.values())), block.gather(torch.cat(list(x.values())))
    )
    assert block.graph.node_counts[-1] == ("none", 0)


def test_groups_of_seeds_stay_together():
    pairs = torch.stack([torch.arange(25), torch.arange(25) % 20 + 30], 1)
    generator = torch.Generator().manual_seed(0)
    seen = []
    for block in NeighborBlocks(typed_graph(), pairs, [2, 2], 4, True, generator):
        assert torch.equal(block.nodes[block.rows], pairs[block.index])
        assert block.plan(Dag.path(2)) is not None
        seen += block.index.tolist()
    assert sorted(seen) == list(range(25))
    assert (
        str(block)
        == f"Block(2 seeds; {len(block.nodes)} of 55 nodes, {block.graph.num_edges} edges)"
    )
    with pytest.raises(ValueError, match="seeds 55 is out of range"):
        NeighborBlocks(typed_graph(), pairs + 25, [2])
    with pytest.raises(ValueError, match="a mask must have shape"):
        NeighborBlocks(typed_graph(), pairs > 3, [2])


def first(graph, seeds, fan_out=(-1,)):
    torch.manual_seed(0)
    return next(iter(NeighborBlocks(graph, seeds, fan_out, 100)))


@pytest.mark.parametrize("dense", [torch.eye(55), torch.rand(55, 3).round(), torch.zeros(55, 2)])
def test_sparse_features_are_gathered(dense):
    block = first(typed_graph(), ("a", torch.tensor([7, 2])), [2])
    for x in (dense, dense.to_sparse_csr(), dense.to_sparse_coo()):
        got = block.gather(x)
        assert got.layout == x.layout
        assert torch.equal(got.to_dense(), dense[block.nodes])


def test_fan_outs_of_relations():
    graph = typed_graph(identity=True)
    fan_out = {key: [0] for key in TYPES} | {("b", "back", "a"): [1]}
    block = first(graph, "a", fan_out)
    counts = {name: matrix.nnz for name, matrix in block.graph.to_scipy().items()}
    receiving = len(np.unique(graph.to_scipy()["b__back__a"].nonzero()[0]))
    assert counts.pop("identity") == block.graph.num_nodes
    assert counts.pop("b__back__a") == receiving
    assert set(counts.values()) == {0}


def test_degenerate_graphs():
    none = RelationGraph.from_edge_index({}, 4, identity=True)
    block = first(none, torch.tensor([2, 2, 0]))
    assert block.nodes.tolist() == [0, 2]
    assert block.rows.tolist() == [1, 1, 0]
    y = propagate_dag(
        block.graph, Dag.path(1), torch.eye(2), {(0, 1): torch.ones(1, 1, 1)}, rows=block.rows
    )
    assert y[:, 0].tolist() == [[0, 1], [0, 1], [1, 0]]
    assert list(NeighborBlocks(none, torch.empty(0, dtype=torch.int64), [2])) == []
    unrelated = RelationGraph.from_edge_index({}, 4)
    assert first(unrelated, torch.tensor([3])).nodes.tolist() == [3]
    whole_identity = RelationGraph.from_scipy({"identity": sp.eye_array(3, format="csr")})
    assert first(whole_identity, torch.tensor([1])).graph.num_edges == 1


def test_a_block_of_a_mapped_graph(tmp_path):
    graph = typed_graph(normalize="row", identity=True)
    graph.save(tmp_path / "graph.npz")
    mapped = RelationGraph.load(tmp_path / "graph.npz", mmap=True)
    assert_same(first(mapped, "a", [2, 2]).graph, first(graph, "a", [2, 2]).graph)


def test_a_block_is_copied_and_pickled():
    block = first(typed_graph(normalize="row"), "a", [2])
    again = pickle.loads(pickle.dumps(block))
    assert_same(again.graph, block.graph)
    assert torch.equal(again.nodes, block.nodes)
    assert_same(block.to("cpu").graph, block.graph)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seeds": torch.tensor([55])}, "seeds 55 is out of range, there are 55"),
        ({"seeds": "d"}, "seeds of the type 'd', but there are"),
        ({"seeds": ("b", torch.tensor([20]))}, "seeds of 'b' 20 is out of range"),
        ({"fan_out": []}, "one number for each hop"),
        ({"fan_out": [2, -2]}, "-1 for all, got -2"),
        ({"fan_out": [2.5]}, "a number of edges"),
        ({"fan_out": {"other": [1]}}, "fan_out is for"),
        ({"fan_out": {("a", "to", "b"): [1]}}, "fan_out is for"),
        ({"fan_out": {key: [1] * (1 + (key[0] == "a")) for key in TYPES}}, "number for each hop"),
        ({"batch_size": 0}, "batch_size must be a positive integer"),
        ({"world": 0}, "world must be"),
        ({"rank": 1}, "rank must be in 0"),
        ({"world": 2}, "give several processes a generator"),
        ({"workers": -1}, "workers must not be negative"),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        NeighborBlocks(**{"graph": typed_graph(), "seeds": "a", "fan_out": [2], **arguments})


def test_an_error_in_a_thread_is_raised(monkeypatch):
    graph = typed_graph()
    blocks = NeighborBlocks(graph, "a", [2], 4, workers=2)
    blocks.fan_out.append(1)
    with pytest.raises((RuntimeError, IndexError)):
        list(blocks)


def test_hetero_data_and_back():
    pytest.importorskip("torch_geometric")
    graph = typed_graph(weights=True, normalize="row", identity=True, zero=True)
    block = first(graph, ("a", torch.tensor([4, 20, 4])), [2, 2])
    again = Block.from_hetero_data(block.to_hetero_data(), COUNTS, identity=True, zero=True)
    assert_same(again.graph, block.graph)
    assert torch.equal(again.nodes, block.nodes)
    assert torch.equal(again.rows, block.rows)
    assert again.whole_counts == block.whole_counts
    loaded = block.to_hetero_data()
    loaded["a"].batch_size = 2  # as in a loader's batch, which copies `rows` of the whole graph
    assert Block.from_hetero_data(loaded, COUNTS).rows.tolist() == [0, 1]
    folded = first(typed_graph(self_loops=True), "a")
    with pytest.raises(ValueError, match="self-loops of 'a__to__b' are folded"):
        folded.to_hetero_data()


def test_batches_of_pyg(monkeypatch):
    """A loader of PyG gives blocks with the results of ours, where all neighbours are taken."""
    typing = pytest.importorskip("torch_geometric.typing")
    if not (typing.WITH_PYG_LIB or typing.WITH_TORCH_SPARSE):
        pytest.skip("PyG's NeighborLoader needs pyg-lib or torch-sparse")
    from torch_geometric.loader import NeighborLoader

    graph, dag = typed_graph(), Dag.path(2)
    data = draw_block(graph, torch.arange(55), [-1] * graph.num_relations, 0).to_hetero_data()
    h, w = torch.randn(55, 3), weights_of(graph, dag)
    want = propagate_dag(graph, dag, h, w)
    loader = NeighborLoader(data, [-1, -1], input_nodes=("a", torch.arange(5)), batch_size=5)
    for batch in loader:
        block = Block.from_hetero_data(batch, COUNTS)
        got = propagate_dag(block.graph, dag, block.gather(h), w, rows=block.rows)
        torch.testing.assert_close(got, want[block.nodes[block.rows]])
