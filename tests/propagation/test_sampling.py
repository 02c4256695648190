"""The operator that draws blocks: the kernel against plain Python, and what a draw must be."""

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tensus_tn.propagation import extension, sampling
from tensus_tn.propagation.relation_graph import RelationGraph


def random_graph(nodes, relations, edges, seed=0, **options):
    generator = torch.Generator().manual_seed(seed)
    lists = {
        f"R{i}": torch.randint(max(nodes, 1), (2, edges * (nodes > 0)), generator=generator)
        for i in range(relations)
    }
    return RelationGraph.from_edge_index(lists, nodes, **options)


def arguments(graph, seeds, fan_out, seed=0):
    seeds = torch.as_tensor(seeds, dtype=torch.int64)
    return seeds, graph.forward.structure(), list(fan_out), graph.num_relations, seed


def assert_same(*args):
    got, expected = torch.ops.tensus_tn.sample_block(*args), sampling.sample_block(*args)
    assert len(got) == len(expected) == 13
    for part, right in zip(got, expected, strict=True):
        assert part.dtype == right.dtype
        assert torch.equal(part, right)


@settings(max_examples=80)
@given(st.data())
def test_the_kernel_draws_what_plain_python_does(data):
    nodes, relations = data.draw(st.integers(1, 30)), data.draw(st.integers(0, 3))
    graph = random_graph(
        nodes, relations, data.draw(st.integers(0, 200)), data.draw(st.integers(0, 9))
    )
    seeds = data.draw(st.lists(st.integers(0, nodes - 1), max_size=8))
    hops = data.draw(st.integers(0, 3))
    number = st.integers(-1, 7)
    fan_out = data.draw(st.lists(number, min_size=hops * relations, max_size=hops * relations))
    assert_same(*arguments(graph, seeds, fan_out, data.draw(st.integers(0, 2**63 - 1))))


def test_wide_indices_draw_the_same():
    graph = random_graph(40, 2, 300)
    seeds, forward, *rest = arguments(graph, [3, 1, 3], [2, 3, -1, 1], 5)
    wide = [part if k == 1 else part.long() for k, part in enumerate(forward)]
    narrow_parts = torch.ops.tensus_tn.sample_block(seeds, forward, *rest)
    for a, b in zip(
        torch.ops.tensus_tn.sample_block(seeds, wide, *rest), narrow_parts, strict=True
    ):
        assert torch.equal(a, b)


def test_many_nodes_are_found():
    """More than fit the first table, with ids of more than one digit of the sort."""
    graph = random_graph(70_000, 1, 200_000)
    nodes, rows, *_ = torch.ops.tensus_tn.sample_block(*arguments(graph, [69_999, 0], [-1] * 12))
    reached = torch.zeros(70_000, dtype=torch.bool)
    reached[[0, 69_999]] = True
    row, col = graph.forward.seg_row()[graph.forward.edge_seg()], graph.forward.col.long()
    for _ in range(12):
        reached[col[reached[row]]] = True
    assert len(nodes) > 10_000
    assert torch.equal(nodes, reached.nonzero().flatten())
    assert rows.tolist() == [len(nodes) - 1, 0]


def test_every_subset_is_equally_likely():
    star = torch.stack([torch.arange(1, 6), torch.zeros(5, dtype=torch.int64)])
    graph = RelationGraph.from_edge_index({"A": star}, 6)
    counts = Counter(
        tuple(torch.ops.tensus_tn.sample_block(*arguments(graph, [0], [2], seed))[0].tolist())
        for seed in range(4000)
    )
    assert len(counts) == 10
    assert all(len(nodes) == 3 for nodes in counts)
    chi = sum((count - 400) ** 2 / 400 for count in counts.values())
    assert chi < 30  # of 9 degrees of freedom; the seeds are fixed, so this is no matter of chance


def test_the_operator_passes_opcheck():
    graph = random_graph(20, 3, 60)
    torch.library.opcheck(
        torch.ops.tensus_tn.sample_block.default, arguments(graph, [1, 2, 1], [2, -1, 0] * 2)
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: {**a, "seeds": torch.tensor([20])}, "seeds must be nodes of the graph"),
        (lambda a: {**a, "seeds": torch.tensor([-1])}, "seeds must be nodes of the graph"),
        (lambda a: {**a, "seeds": torch.tensor([1.0])}, "seeds must be a contiguous vector"),
        (lambda a: {**a, "forward": []}, "forward must hold row_ptr"),
        (lambda a: {**a, "fan_out": [1, 2]}, "fan_out must hold 3 numbers for each hop, got 2"),
        (lambda a: {**a, "relations": -1}, "number of relations"),
        (lambda a: with_part(a, 0, lambda t: t + 900), "row_ptr must rise"),
        (lambda a: with_part(a, 0, lambda t: t.flip(0)), "row_ptr must rise"),
        (lambda a: with_part(a, 1, lambda t: t + 3), "seg_rel must lie"),
        (lambda a: with_part(a, 2, lambda t: t * 900), "seg_ptr must rise"),
        (lambda a: with_part(a, 3, lambda t: t - 900), "col must lie"),
        (lambda a: with_part(a, 3, lambda t: t + 900), "col must lie"),
    ],
)
def test_the_kernel_checks_its_arguments(change, message):
    if extension._C is None:
        pytest.skip("the extension is not built")
    names = ("seeds", "forward", "fan_out", "relations", "seed")
    given = dict(zip(names, arguments(random_graph(20, 3, 60), [1, 2], [-1, 2, 1]), strict=True))
    with pytest.raises(RuntimeError, match=message):
        torch.ops.tensus_tn.sample_block(**change(given))


def with_part(given, number, change):
    forward = list(given["forward"])
    forward[number] = change(forward[number])
    return {**given, "forward": forward}
