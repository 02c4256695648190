"""The operator that makes a structure of lists of edges: the kernel against the plain sort."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tensus_tn.propagation import operators as operators  # registers them
from tensus_tn.propagation import reference, segments


def ids(count, size, generator):
    return torch.randint(max(count, 1), (size,), generator=generator)


def random_lists(counts, relations, seed):
    """Lists of edges between node types, with some edges twice."""
    generator = torch.Generator().manual_seed(seed)
    starts = [sum(counts[:k]) for k in range(len(counts))]
    rows, cols, ranges = [], [], []
    for target, source, size in relations:
        both = min(counts[target], counts[source]) > 0
        rows.append(ids(counts[target], size * both, generator))
        cols.append(ids(counts[source], size * both, generator))
        ranges += [starts[target], counts[target], starts[source], counts[source]]
    return rows, cols, ranges, sum(counts)


def assert_same(lists, positions, wide):
    got = torch.ops.tensus_tn.assemble(*lists, positions, wide)
    expected = reference.assemble(*lists, positions, wide)
    assert len(got) == len(expected) == 10
    for part, right in zip(got, expected, strict=True):
        assert part.dtype == right.dtype
        assert torch.equal(part, right)


CASES = {
    "no relations": ([4], []),
    "no nodes": ([0], [(0, 0, 0)]),
    "no edges": ([3, 2], [(0, 1, 0), (1, 1, 0)]),
    "one node, one edge many times": ([1], [(0, 0, 5)]),
    "an empty type": ([3, 0, 4], [(0, 1, 9), (2, 0, 9), (1, 2, 9)]),
    "isolated nodes": ([50], [(0, 0, 4), (0, 0, 3)]),
    "several": ([5, 7, 2], [(0, 1, 30), (1, 0, 30), (2, 1, 5), (1, 1, 60), (0, 1, 20)]),
}


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_the_kernel_sorts_as_the_plain_sort_does(case, positions, wide):
    assert_same(random_lists(*CASES[case], seed=0), positions, wide)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_any_lists(data):
    counts = data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=3))
    kind = st.integers(0, len(counts) - 1)
    relations = data.draw(st.lists(st.tuples(kind, kind, st.integers(0, 20)), max_size=4))
    assert_same(random_lists(counts, relations, data.draw(st.integers(0, 99))), True, False)


def test_the_place_of_every_edge():
    lists = random_lists(*CASES["several"], seed=1)
    forward, backward, places = segments.assemble(*lists, positions=True)
    row = forward.seg_row()[forward.edge_seg()]
    rel = forward.seg_rel[forward.edge_seg()]
    given = torch.cat([torch.full((len(r),), i) for i, r in enumerate(lists[0])])
    start = torch.tensor(lists[2]).view(-1, 4)[given]
    places = places.long()
    assert torch.equal(row[places], torch.cat(lists[0]) + start[:, 0])
    assert torch.equal(forward.col[places].long(), torch.cat(lists[1]) + start[:, 2])
    assert torch.equal(rel[places].long(), given)
    assert torch.equal(forward.col[backward.edge_perm], backward.seg_row()[backward.edge_seg()])


def test_the_operator_passes_opcheck():
    lists = random_lists(*CASES["several"], seed=2)
    for positions in (False, True):
        torch.library.opcheck(torch.ops.tensus_tn.assemble.default, (*lists, positions, False))


ONE = torch.tensor([0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([ONE], [], [], 1), "as many cols as rows"),
        (([ONE], [ONE], [0, 1], 1), "four numbers for each"),
        (([ONE.int()], [ONE], [0, 1, 0, 1], 1), "contiguous vector of int64"),
        (([ONE[None]], [ONE], [0, 1, 0, 1], 1), "contiguous vector of int64"),
        (([torch.arange(4)[::2]], [torch.arange(2)], [0, 4, 0, 4], 4), "contiguous vector"),
        (([ONE], [torch.tensor([0, 0])], [0, 1, 0, 1], 1), "1 receiving but 2 sending"),
        (([ONE], [ONE], [0, 1, 1, 1], 1), "is not within 1 nodes"),
        (([ONE], [ONE], [-1, 1, 0, 1], 1), "is not within"),
        (([ONE], [ONE], [0, 0, 0, 1], 1), "receiving node 0 is out of range, there are 0"),
        (([ONE], [ONE - 1], [0, 1, 0, 1], 1), "sending node -1 is out of range"),
        (([ONE], [ONE], [0, 1, 0, 1], -1), "number of nodes"),
        (([ONE], [ONE], [0, 1, 0, 1], 2**31), "number of nodes"),
    ],
)
def test_the_kernel_checks_its_arguments(arguments, message):
    from tensus_tn.propagation import extension

    if extension._C is None:
        pytest.skip("the extension is not built")
    with pytest.raises(RuntimeError, match=message):
        torch.ops.tensus_tn.assemble(*arguments, False, False)
