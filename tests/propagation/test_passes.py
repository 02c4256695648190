"""Single passes: the kernels against plain PyTorch, and both against a whole propagation."""

import pytest
import torch

from tensus_tn import RelationGraph, propagate
from tensus_tn.propagation import extension, passes
from tensus_tn.propagation.operators import PLAIN

NATIVE = extension._C is not None
OPS = torch.ops.tensus_tn


def rectangle(rows, columns, seed=0, relations=3, index=torch.int32, values="seg_val"):
    """Rows of a graph with more columns, every other row without edges, and self-loops."""
    generator = torch.Generator().manual_seed(seed)
    counts = torch.randint(0, 3, (rows,), generator=generator) * (torch.arange(rows) % 2)
    row_ptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    seg_rel = torch.cat(
        [torch.zeros(0, dtype=torch.int64)]
        + [torch.randperm(relations, generator=generator)[:c].sort().values for c in counts]
    )
    sizes = torch.randint(1, 5, (len(seg_rel),), generator=generator)
    seg_ptr = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)])
    col = torch.randint(columns, (int(seg_ptr[-1]),), generator=generator)
    structure = [row_ptr.to(index), seg_rel.int(), seg_ptr.to(index), col.to(index)]
    number = len(seg_rel) if values == "seg_val" else len(col)
    drawn = torch.rand(number, generator=generator)
    edge_val, seg_val = (None, drawn) if values == "seg_val" else (drawn, None)
    loop = torch.rand(relations, generator=generator)
    return structure, edge_val, seg_val, loop, torch.rand(len(seg_rel), generator=generator)


def cast(dtype, *tensors):
    return [None if t is None else t.to(dtype) for t in tensors]


CASES = [
    # rows, columns, ranks of the near and the far states, features, index, values, loops
    (6, 9, 2, (1, 2), 5, torch.int32, "seg_val", "all"),
    (7, 7, 1, (2,), 64, torch.int64, "edge_val", "relations"),
    (5, 30, 3, (3, 1, 2), 16, torch.int32, "edge_val", "none"),
    (0, 4, 2, (1,), 3, torch.int32, "seg_val", "all"),
]


@pytest.mark.skipif(not NATIVE, reason="compares the kernels with plain PyTorch")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("from_tail", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("own", [None, 0, 3])
def test_gather_mix(case, from_tail, dtype, own):
    """Columns from `own` on are rows of a halo."""
    rows, columns, rank, far, features, index, values, loops = case
    structure, edge_val, seg_val, loop, seg_loop = rectangle(
        rows, columns, index=index, values=values
    )
    sums = torch.float64 if dtype == torch.float64 else torch.float32
    loop, seg_loop = None if loops == "none" else loop, seg_loop if loops == "all" else None
    edge_val, seg_val, loop, seg_loop = cast(sums, edge_val, seg_val, loop, seg_loop)
    x = torch.randn(columns, rank, features).to(dtype)
    shapes = [(3, rank, q) if from_tail else (3, q, rank) for q in far]
    w = [torch.randn(shape, dtype=sums) for shape in shapes]
    near = torch.arange(rows).to(index)
    near[rows // 3 : rows // 3 + 1] = -1
    x, halo = (x, None) if own is None else (x[:own].clone(), x[own:].clone())
    near[near >= len(x)] = -1
    number = [torch.arange(rows).flip(0).to(index).roll(k) for k in range(len(far))]
    number[0][rows // 2 : rows // 2 + 1] = -1
    other = [torch.randn(columns, q, features).to(dtype) for q in far]
    results = []
    for operator in (OPS.gather_mix, PLAIN["gather_mix"]):
        out = [torch.ones(columns, q, features).to(dtype) for q in far]
        out[-1] = out[-1] if len(far) == 1 else out[-1][:0]
        dw = [torch.full_like(weight, 7) for weight in w]
        operator(
            x, halo, w, edge_val, seg_val, loop, seg_loop, structure, structure[:2], near, number,
            out, [1, *[0] * (len(far) - 1)], other, dw, from_tail,
        )  # fmt: skip
        results.append([*out, *dw])
    for a, b in zip(*results, strict=True):
        close = {"rtol": 2e-2, "atol": 2e-1} if dtype == torch.bfloat16 else {}
        torch.testing.assert_close(a, b, **close)


@pytest.mark.skipif(not NATIVE, reason="compares the kernels with plain PyTorch")
@pytest.mark.parametrize("from_tail", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("accumulate", [True, False])
@pytest.mark.parametrize("own", [None, 0, 4])
def test_mix_gather(from_tail, dtype, accumulate, own):
    rows, receiving, rank, far = 9, 6, 2, (4, 1)
    structure, edge_val, seg_val, loop, seg_loop = rectangle(rows, rows)
    sums = torch.float64 if dtype == torch.float64 else torch.float32
    edge_val, seg_val, loop, seg_loop = cast(sums, edge_val, seg_val, loop, seg_loop)
    row_ptr = structure[0]
    row_ptr[receiving:] = row_ptr[receiving]
    structure[1] = structure[1][: int(row_ptr[-1])]
    structure[2] = structure[2][: int(row_ptr[-1]) + 1]
    structure[3] = structure[3][: int(structure[2][-1])]
    seg_val, seg_loop = seg_val[: len(structure[1])], seg_loop[: len(structure[1])]
    number = torch.tensor([*range(receiving), *[-1] * (rows - receiving)], dtype=torch.int32)
    apart = [torch.arange(rows).roll(1).int(), torch.arange(rows).int()]
    apart[1][2] = -1
    shapes = [(3, rank, q) if from_tail else (3, q, rank) for q in far]
    w = [torch.randn(shape, dtype=sums) for shape in shapes]
    other = [torch.randn(rows, q, 5).to(dtype) for q in far]
    halos = [] if own is None else [x[own:].clone() for x in other]
    other = [x[:own].clone() for x in other]
    results = []
    for operator in (OPS.mix_gather, PLAIN["mix_gather"]):
        y = torch.ones(receiving, rank, 5).to(dtype)
        operator(
            y, accumulate, w, edge_val, seg_val, loop, seg_loop, structure, structure[:2], number,
            apart, other, halos, from_tail,
        )  # fmt: skip
        results.append(y)
    close = {"rtol": 2e-2, "atol": 2e-1} if dtype == torch.bfloat16 else {}
    torch.testing.assert_close(*results, **close)


def test_two_passes_are_a_propagation():
    """Even and odd rows in turn, each by its own structure, into the same state."""
    index = {"A": torch.tensor([[0, 1, 2, 3, 3], [1, 2, 3, 0, 1]])}
    graph = RelationGraph.from_edge_index(index, 4, normalize="row", self_loops=True)
    h, w = torch.randn(4, 2, 3), torch.randn(1, 2, 2)
    forward, out = graph.forward, torch.empty(4, 2, 3)
    for parity in (0, 1):
        keep = forward.seg_row() % 2 == parity
        rows = torch.arange(parity, 4, 2)
        counts = forward.row_ptr.diff()[rows]
        ends = forward.seg_ptr.diff()[keep]
        structure = [
            torch.cat([counts.new_zeros(1), counts.cumsum(0)]).int(),
            forward.seg_rel[keep],
            torch.cat([ends.new_zeros(1), ends.cumsum(0)]).int(),
            forward.col[keep[forward.edge_seg()]],
        ]
        OPS.gather_mix(
            h, None, [w], None, forward.seg_val[keep], graph.loop, forward.seg_loop[keep], structure,
            structure[:2], rows.int(), [rows.int()], [out], [0], [], [], True,
        )  # fmt: skip
    torch.testing.assert_close(out, propagate(graph, h, w))


BAD = {
    "x must be a contiguous state": {"x": torch.zeros(4, 3).T},
    "at least one link": {"w": [], "out": [], "accumulate": []},
    "one w, out and accumulate": {"accumulate": [0, 0]},
    "w must hold contiguous": {"w": [torch.zeros(1, 3, 1)]},
    "col must lie in": {"structure": (3, torch.tensor([0, 9], dtype=torch.int32))},
    "seg_ptr must rise": {"structure": (2, torch.tensor([0, 2, 1], dtype=torch.int32))},
    "row_ptr must rise": {"structure": (0, torch.tensor([0, 2, 1], dtype=torch.int32))},
    "seg_rel must lie in": {"structure": (1, torch.tensor([0, 5], dtype=torch.int32))},
    "rows must lie in": {"near_rows": torch.tensor([0, 7], dtype=torch.int32)},
    "far_rows of each link": {"far_rows": [torch.zeros(2, dtype=torch.int32)] * 2},
    "out must be a contiguous state": {"out": [torch.zeros(4, 2, 5)]},
    "2 rows, but a state of 1": {"out": [torch.zeros(1, 2, 3)]},
    "halo must be a contiguous state": {"halo": torch.zeros(1, 2, 3)},
    "halo must be a .* of rank 1": {"halo": torch.zeros(5, 0, 3)},
    "seg_loop needs loop": {"seg_loop": torch.ones(2)},
}


@pytest.mark.skipif(not NATIVE, reason="plain PyTorch trusts its caller")
@pytest.mark.parametrize("message", BAD)
def test_bad_arguments_are_refused(message):
    arguments = {
        "x": torch.zeros(4, 1, 3),
        "halo": None,
        "w": [torch.zeros(1, 1, 2)],
        "edge_val": None,
        "seg_val": None,
        "loop": None,
        "seg_loop": None,
        "structure": [
            torch.tensor(t, dtype=torch.int32) for t in ([0, 1, 2], [0, 0], [0, 1, 2], [0, 3])
        ],
        "pairs": [],
        "near_rows": None,
        "far_rows": [],
        "out": [torch.zeros(4, 2, 3)],
        "accumulate": [0],
        "other": [],
        "dw": [],
        "from_tail": True,
    }
    OPS.gather_mix(*arguments.values())
    for name, value in BAD[message].items():
        if name == "structure":
            arguments[name][value[0]] = value[1]
        else:
            arguments[name] = value
    with pytest.raises(RuntimeError, match=message):
        OPS.gather_mix(*arguments.values())


def test_edges_into_a_row_that_is_not_there_lead_nowhere():
    structure = [torch.tensor(t, dtype=torch.int32) for t in ([0, 1, 2], [0, 0], [0, 1, 2], [1, 0])]
    near, x = torch.tensor([-1, 0], dtype=torch.int32), torch.tensor([2.0, 5.0]).view(2, 1, 1)
    for operator in (OPS.mix_gather, PLAIN["mix_gather"]):
        y = torch.full((1, 1, 1), 7.0)
        operator(
            y, False, [torch.full((1, 1, 1), 3.0)], None, None, None, None, structure, [], near, [],
            [x], [], True,
        )  # fmt: skip
        assert y.item() == 6.0


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_some_rows_with_some_edges(index):
    structure = rectangle(9, 12, index=index)[0]
    row_ptr, seg_rel, seg_ptr, col = structure
    used = torch.tensor([True, False, True])
    rows = torch.tensor([5, 1, -1, 3, 5])
    column = torch.randperm(12).to(index)
    column[::4] = -1
    for operators in ({k: getattr(OPS, k) for k in ("select_rows", "mark_columns")}, PLAIN):
        *some, segment, edge = operators["select_rows"](structure, rows, used, column)
        seg = torch.repeat_interleave(torch.arange(len(some[1])), some[2].diff().long())
        assert torch.equal(some[1], seg_rel[segment.long()])
        assert torch.equal(some[3], column[col[edge.long()].long()])
        assert (some[3] >= 0).all()
        assert used[some[1].long()].all()
        assert (some[2].diff() > 0).all()
        home = torch.searchsorted(seg_ptr, edge, right=True) - 1  # the segment of each edge, before
        assert torch.equal(home, segment.long()[seg])
        for n, count in zip(rows.tolist(), some[0].diff().tolist(), strict=True):
            kept = range(row_ptr[n], row_ptr[n + 1]) if n >= 0 else []
            kept = [s for s in kept if used[seg_rel[s]]]
            kept = [s for s in kept if (column[col[seg_ptr[s] : seg_ptr[s + 1]].long()] >= 0).any()]
            assert len(kept) == count
        marked = operators["mark_columns"](structure, torch.arange(9) == 5, used, 12)
        edges = slice(seg_ptr[row_ptr[5]], seg_ptr[row_ptr[6]])
        rel = torch.repeat_interleave(seg_rel.long(), seg_ptr.diff().long())[edges]
        assert set(marked.nonzero().flatten().tolist()) == set(col[edges][used[rel]].tolist())


@pytest.mark.skipif(not NATIVE, reason="plain PyTorch trusts its caller")
def test_rows_and_columns_that_are_not_there_are_refused():
    structure = rectangle(9, 12)[0]
    used, column = torch.ones(3, dtype=torch.bool), torch.arange(12).int()
    with pytest.raises(RuntimeError, match=r"rows must lie in \[-1, 9\)"):
        OPS.select_rows(structure, torch.tensor([9]), used, column)
    with pytest.raises(RuntimeError, match="col must lie in"):
        OPS.select_rows(structure, torch.tensor([1]), used, column[:3])
    with pytest.raises(RuntimeError, match="seg_rel must lie in"):
        OPS.mark_columns(structure, torch.ones(9, dtype=torch.bool), used[:1], 12)
    with pytest.raises(RuntimeError, match="rows must have 9 entries"):
        OPS.mark_columns(structure, torch.ones(8, dtype=torch.bool), used, 12)


def test_a_plan_is_for_sizes():
    wide = [torch.tensor([50, 50]), 10, [8, 1], [0], [1], None, False]
    assert OPS.plan_passes(*wide) == [int(NATIVE)]
    assert passes.plan_passes(*wide) == [0]
    assert OPS.plan_passes(torch.tensor([50, 50]), 10, [8, 1], [0], [1], [0, 0], False) == [0]


def test_memory_has_the_features_of_another_state():
    for operator in (OPS.empty_state, PLAIN["empty_state"]):
        for nodes in (0, 3, 20_000):  # the last one from blocks that are kept
            state = operator(torch.zeros(1, 1, 40, dtype=torch.float64), nodes, 2)
            assert (tuple(state.shape), state.dtype) == ((nodes, 2, 40), torch.float64)
            state.fill_(1.0)


@pytest.mark.parametrize("from_tail", [True, False])
def test_opcheck(from_tail):
    structure, _, seg_val, loop, seg_loop = rectangle(6, 6)
    numbers, pairs = [None, seg_val, loop, seg_loop], structure[:2]
    x, far, w = torch.randn(6, 2, 5), torch.randn(6, 2, 5), torch.randn(3, 2, 2)
    links = [[far], [1], [x.clone()], [torch.empty_like(w)], from_tail]
    given = (x, far.clone(), [w], *numbers, structure, pairs, None, [], *links)
    torch.library.opcheck(OPS.gather_mix.default, given)
    given = (far, True, [w], *numbers, structure, pairs, None, [], [x], [x[:0]], from_tail)
    torch.library.opcheck(OPS.mix_gather.default, given)
    marked, column = torch.ones(6, dtype=torch.bool), torch.arange(6).int()
    used = torch.tensor([True, False, True])
    torch.library.opcheck(OPS.mark_columns.default, (structure, marked, used, 6))
    torch.library.opcheck(OPS.select_rows.default, (structure, torch.arange(6), used, column))
    torch.library.opcheck(OPS.empty_state.default, (x, 7, 3), test_utils="test_schema")
    torch.library.opcheck(OPS.empty_state.default, (x, 7, 3), test_utils="test_faketensor")
