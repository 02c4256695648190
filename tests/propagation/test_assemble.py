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
    assert len(got) == len(expected) == 11
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


@settings(max_examples=60)
@given(st.data())
def test_any_lists(data):
    counts = data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=3))
    kind = st.integers(0, len(counts) - 1)
    relations = data.draw(st.lists(st.tuples(kind, kind, st.integers(0, 20)), max_size=4))
    assert_same(random_lists(counts, relations, data.draw(st.integers(0, 99))), True, False)


def test_lists_that_threads_share():
    relations = [(0, 1, 9000), (1, 0, 5000), (2, 2, 3000), (1, 1, 12000)]  # enough to call them
    assert_same(random_lists([300, 400, 20], relations, seed=3), True, False)


def test_the_place_of_every_edge():
    lists = random_lists(*CASES["several"], seed=1)
    forward, backward, times, places = segments.assemble(*lists, positions=True)
    row = forward.seg_row()[forward.edge_seg()]
    rel = forward.seg_rel[forward.edge_seg()]
    given = torch.cat([torch.full((len(r),), i) for i, r in enumerate(lists[0])])
    start = torch.tensor(lists[2]).view(-1, 4)[given]
    places = places.long()
    assert torch.equal(times.long(), torch.bincount(places))
    assert torch.equal(row[places], torch.cat(lists[0]) + start[:, 0])
    assert torch.equal(forward.col[places].long(), torch.cat(lists[1]) + start[:, 2])
    assert torch.equal(rel[places].long(), given)
    assert torch.equal(forward.col[backward.edge_perm], backward.seg_row()[backward.edge_seg()])


def test_the_operator_passes_opcheck():
    lists = random_lists(*CASES["several"], seed=2)
    for positions in (False, True):
        torch.library.opcheck(torch.ops.tensus_tn.assemble.default, (*lists, positions, False))


def counted(lists, dtype, wide, seed):
    """What `normalize_counts` takes: the structure of some lists, and options."""
    parts = torch.ops.tensus_tn.assemble(*lists, False, wide)
    generator = torch.Generator().manual_seed(seed)
    divide = torch.randint(2, (len(lists[0]) + 1,), generator=generator).tolist()
    loop = torch.randint(2, (len(divide),), generator=generator).to(dtype)
    return parts[1], parts[2], parts[8], parts[9], divide, loop


def without_repeats(lists):
    rows, cols, *rest = lists
    pairs = [
        torch.unique(torch.stack(pair), dim=1) if len(pair[0]) else torch.stack(pair)
        for pair in zip(rows, cols, strict=True)
    ]
    return *([pair[end].contiguous() for pair in pairs] for end in (0, 1)), *rest


def assert_same_values(arguments):
    got = torch.ops.tensus_tn.normalize_counts(*arguments)
    expected = reference.normalize_counts(*arguments)
    for part, right in zip(got, expected, strict=True):
        assert part.dtype == right.dtype
        assert torch.equal(part, right)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_the_kernel_normalises_as_plain_pytorch_does(case, once, dtype, wide):
    lists = random_lists(*CASES[case], seed=4)
    for seed in range(4):
        chosen = without_repeats(lists) if once else lists
        assert_same_values(counted(chosen, dtype, wide, seed))


def test_values_that_threads_share():
    lists = random_lists([300, 2000], [(0, 1, 9000), (1, 0, 5000)], seed=5)
    assert_same_values(counted(lists, torch.float32, False, seed=1))


def test_normalisation_passes_opcheck():
    lists = random_lists(*CASES["several"], seed=6)
    arguments = counted(lists, torch.float64, False, seed=0)
    torch.library.opcheck(torch.ops.tensus_tn.normalize_counts.default, arguments)


def test_normalisation_checks_its_arguments():
    from tensus_tn.propagation import extension

    if extension._C is None:
        pytest.skip("the extension is not built")
    lists = random_lists(*CASES["several"], seed=7)
    right = dict(
        zip(
            ("seg_rel", "seg_ptr", "perm", "times", "divide", "loop"),
            counted(lists, torch.float32, False, seed=0),
            strict=True,
        )
    )
    edges = right["perm"].numel()
    for name, value, message in (
        ("seg_rel", right["seg_rel"] + 9, "relation that is not there"),
        ("seg_rel", right["seg_rel"] - 9, "relation that is not there"),
        ("seg_rel", right["seg_rel"].long(), "seg_rel must be a contiguous vector"),
        ("seg_ptr", right["seg_ptr"] + 1, "seg_ptr must rise"),
        ("seg_ptr", right["seg_ptr"].flip(0).contiguous(), "seg_ptr must rise"),
        ("seg_ptr", right["seg_ptr"][1:], "seg_ptr must have"),
        ("perm", right["perm"] - 1, "perm holds an edge"),
        ("perm", right["perm"] + edges, "perm holds an edge"),
        ("perm", right["perm"].long(), "perm must be a contiguous vector"),
        ("times", right["times"][1:], "times must have"),
        ("loop", right["loop"][1:], "loop must have"),
        ("loop", right["loop"].half(), "loop must be float32 or float64"),
    ):
        with pytest.raises(RuntimeError, match=message):
            torch.ops.tensus_tn.normalize_counts(*(right | {name: value}).values())


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
