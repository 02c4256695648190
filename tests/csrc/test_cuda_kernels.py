"""The CUDA kernels, run on the CPU by simt/: every CUDA thread is a fiber, in shuffled orders.

The cases and formulas are those of test_kernels.py: small integers, so that sums are exact and the
results are compared for equality, after rounding to the storage type. Rows are split from 8 edges
on and shared memory is small here, so that small graphs take every path.

The same runs under sanitizers, in child processes. That every checker can fail is shown by bugs
that are planted into copies of the kernels.
"""

import itertools
import os
import platform
import shutil
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.csrc.building import COMPILER, CSRC, HERE
from tests.csrc.simt_build import REALS, needs_simt
from tests.csrc.test_kernels import Case, cases

pytestmark = needs_simt


# ---------------------------------------------------------------------------- the formulas


def to_bfloat16(x):
    """The bits, rounded to nearest even; NaN keeps its upper half."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


STORE = {
    "f32": np.float32,
    "f64": np.float64,
    "f16": lambda x: np.asarray(x, np.float32).astype(np.float16),
    "bf16": to_bfloat16,
}


def some_rows(state, selecting, index):
    """A state with zeros in the rows that it lacks, the rows that it has, and their map."""
    if selecting is None:
        return state, slice(None), None
    has = selecting.integers(0, 2, len(state)).astype(bool)
    row = np.where(has, has.cumsum() - 1, -1).astype(index)
    return state * has[:, None, None], has, row


def some_groups(case, grouping):
    """Where the groups of features end, within vectors or not, and (groups, F): which have which."""
    ends = [case.x.shape[-1]]
    if grouping:
        unit = grouping.choice([1, 4, 8])
        ends = sorted([*(unit * grouping.integers(0, ends[0] // unit + 1, 3)), *ends])
    before = [np.arange(ends[-1]) < end for end in [0, *ends]]
    return ends, np.diff(np.array(before, int), axis=0)


def weights_of_groups(case, link, ends):
    """(groups, C, P, Q): the link's own and more, each matrix laid out as there."""
    w = np.stack([link.w, *(case.numbers(*link.w.shape) for _ in ends[1:])])
    w = w.swapaxes(2, 3) if link.turned else w
    w = np.ascontiguousarray(w)
    return w.swapaxes(2, 3) if link.turned else w


def check_gather_mix(
    simt, case, real, accumulate, wanted, offset, choosing=None, selecting=None, grouping=None
):
    """The generators draw the relations that links use, the rows of states and groups of features.

    Without them, these are all relations, all rows and one group.
    """
    store, edges, results, index = STORE[real], [], [], case.graph.col.dtype
    x, rows_of_x, map_of_x = some_rows(case.x, selecting, index)
    gathered = np.einsum("inm,mpf->inpf", case.dense(), x)
    ends, member = some_groups(case, grouping)
    for link in case.links:
        other, rows, row = some_rows(link.other, selecting, index)
        w = weights_of_groups(case, link, ends)
        edge = {"w": w, "other": store(other[rows]), "accumulate": accumulate, "row": row}
        used = np.ones(len(link.w))
        if choosing:
            used = choosing.integers(0, 2, len(used))
            edge["chosen"] = used.tolist()
        if wanted != "dw":
            start, kept = case.before(accumulate, *other[rows].shape)
            edge["out"] = store(start)
            mixed = np.einsum("gf,i,gipq,inpf->nqf", member, used, w, gathered, optimize=True)
            results.append((edge["out"], store(kept + mixed[rows])))
        if wanted != "out":
            edge["dw"] = np.full_like(w, np.nan)
            dw = np.einsum("gf,i,inpf,nqf->gipq", member, used, gathered, other, optimize=True)
            results.append((edge["dw"], dw))
        edges.append(simt.Edge(**edge))
    simt.gather_mix(real, *case.bound(simt), store(x[rows_of_x]), edges, offset, map_of_x, ends)
    for got, want in results:
        np.testing.assert_array_equal(got, want)


def check_edge_gradient(simt, case, real, accumulate, offset, selecting=None, grouping=None):
    store, g, edges = STORE[real], case.graph, []
    x, rows_of_x, map_of_x = some_rows(case.x, selecting, g.col.dtype)
    grad, want = case.before(accumulate, len(g.col))
    relation, row = g.of_edges(g.seg_rel), g.of_edges(g.row)
    ends, member = some_groups(case, grouping)
    for link in case.links:
        other, rows, row_map = some_rows(link.other, selecting, g.col.dtype)
        w = weights_of_groups(case, link, ends)
        mixed = np.einsum("gf,gepq,eqf->epf", member, w[:, relation], other[row], optimize=True)
        want = want + np.einsum("epf,epf->e", mixed, x[g.col])
        edges.append(simt.Edge(w, store(other[rows]), row=row_map))
    graph, _ = case.bound(simt)
    x = store(x[rows_of_x])
    simt.edge_gradient(real, graph, x, edges, grad, accumulate, offset, map_of_x, ends)
    np.testing.assert_array_equal(grad, want)


NARROW = st.sampled_from(["f32", "f16", "bf16"])  # storage of cases whose sums are float32
OFFSET = st.sampled_from([0, 0, 1])  # of all arrays, in numbers: at odd addresses are no vectors
SEED = st.integers(0, 99)
simt_test = settings(max_examples=120)  # a fiber a thread: each takes long


@given(case=cases, wanted=st.sampled_from(["out", "dw", "both"]), accumulate=st.booleans(),
       narrow=NARROW, offset=OFFSET, seed=SEED, chosen=st.booleans(), some=st.booleans(),
       grouped=st.booleans())  # fmt: skip
@simt_test
def test_gather_mix(simt, case, wanted, accumulate, narrow, offset, seed, chosen, some, grouped):
    simt.set_seed(seed)
    real = "f64" if case.real == np.float64 else narrow
    draws = (np.random.default_rng(seed) if each else None for each in (chosen, some, grouped))
    check_gather_mix(simt, case, real, accumulate, wanted, offset, *draws)


@given(case=cases, accumulate=st.booleans(), narrow=NARROW, offset=OFFSET, seed=SEED,
       some=st.booleans(), grouped=st.booleans())  # fmt: skip
@simt_test
def test_edge_gradient(simt, case, accumulate, narrow, offset, seed, some, grouped):
    simt.set_seed(seed)
    real = "f64" if case.real == np.float64 else narrow
    draws = (np.random.default_rng(seed) if each else None for each in (some, grouped))
    check_edge_gradient(simt, case, real, accumulate or some, offset, *draws)


def test_same_bits_in_any_order(simt):
    """Numbers that do not add up exactly, so that another order of a sum would show."""
    results = []
    for seed in range(4):
        case = Case(3, 9, 3, (1, 1), 64, 2, [2, 3], np.float32, np.int32, (True,) * 4)
        case.x = (case.x + np.float32(0.1)) / np.float32(3)
        out, dw = (case.unset(*shape) for shape in ((9, 2, 64), (3, 2, 2)))
        w, other, _ = case.links[0]
        simt.set_seed(seed)
        edges = [simt.Edge(w[None], other, out, dw)]
        simt.gather_mix("f32", *case.bound(simt), case.x, edges, 0, None, [64])
        results.append((out, dw))
    for again in results[1:]:
        np.testing.assert_array_equal(results[0][0], again[0])
        np.testing.assert_array_equal(results[0][1], again[1])


# ---------------------------------------------------------------------------- sanitizers


def run_every_kernel(simt, reals, seed):
    """Cases that take each instantiation: one rank, more in two tiles of features, no vectors; the
    last with wide indices."""
    simt.set_seed(seed)
    for real, index in itertools.product(reals, [np.int32, np.int64]):
        sums = np.float64 if real == "f64" else np.float32
        sizes = [(2, 7)] if index == np.int64 else [(1, 8), (3, 72), (2, 7)]
        for rank, features in sizes:
            far, options = [1, 5, 3], (True, True, True, features != 8)
            case = Case(seed, 9, 3, (0.7, 0.7), features, rank, far, sums, index, options)
            for wanted in ("out", "both"):
                check_gather_mix(simt, case, real, True, wanted, 0)
            drawing = np.random.default_rng(seed)
            check_gather_mix(simt, case, real, True, "both", 0, selecting=drawing)
            check_gather_mix(simt, case, real, True, "both", 0, *3 * [drawing])
            check_edge_gradient(simt, case, real, True, 0)
            check_edge_gradient(simt, case, real, True, 0, *2 * [drawing])
    print("all fine")


SANITIZED = {  # how the kernels are built and the scheduler, and what is loaded before Python
    "address": (
        ["-O0", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
        ["-fsanitize=address"],
        "libasan.so",
    ),
    "thread": (  # it knows so many threads only
        ["-O1", "-g1", "-fsanitize=thread", "-DTENSUS_FINISH_THREADS=32"],
        ["-DSIMT_THREADS"],
        "libtsan.so",
    ),
}
needs_preload = pytest.mark.skipif(
    platform.system() != "Linux" or "clang" in " ".join(COMPILER), reason="needs GCC's sanitizers"
)


def run_child(module, preload=None, reals=("f32",), seed=1):
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = [{str(HERE.parents[1])!r}]\n"
               "from tests.csrc.simt_build import load\n"
               "from tests.csrc.test_cuda_kernels import run_every_kernel\n"
               f"run_every_kernel(load({str(module)!r}), {reals!r}, {seed})"]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if preload:
        find = [*COMPILER, f"-print-file-name={preload}"]
        library = subprocess.run(find, capture_output=True, text=True, check=True).stdout.strip()
        environment |= {"LD_PRELOAD": library, "ASAN_OPTIONS": "detect_leaks=0"}
        environment |= {"TSAN_OPTIONS": "halt_on_error=1"}
        if shutil.which("setarch"):  # the shadow memory wants addresses that are not random
            command = ["setarch", "-R", *command]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)


@needs_preload
@pytest.mark.parametrize("sanitizer", list(SANITIZED))
def test_every_kernel_under_sanitizers(build_module, sanitizer):
    flags, scheduler, preload = SANITIZED[sanitizer]
    reals = REALS[:3]  # both kinds of halves are read and written alike
    run = run_child(build_module(reals, CSRC, flags, scheduler), preload, reals)
    assert run.stdout == "all fine\n", run.stdout[-2000:] + run.stderr[-4000:]


# ---------------------------------------------------------------------------- planted bugs

BARRIER = "  __syncthreads();\n"
PLANTED = {  # a file, what is right there and what is wrong instead, who sees it and what it says
    "missing barrier": ("gather_mix.h", BARRIER, "", "thread", "data race"),
    "missing barrier of a warp": (
        "gather_mix.h", "        __syncwarp(kWarp);", "", "thread", "data race"),
    "divergent barrier": (
        "gather_mix.h", BARRIER, "  if (threadIdx.x < 64) __syncthreads();\n",
        None, "has ended without the barrier"),
    "two barriers at once": (
        "gather_mix.h", "    __syncthreads();\n",
        "    if (threadIdx.x == 0) __syncthreads(); else\n    __syncthreads();\n",
        None, "is at the barrier"),
    "one beyond shared memory": (
        "pass.h", "k < pass.packed", "k <= pass.packed", "address", "heap-buffer-overflow"),
    "one beyond global memory": (
        "gather_mix.h", "pass.col[begin + mine]",
        "pass.col[begin + mine + (mine + 1 == count)]", "address", "heap-buffer-overflow"),
    "shuffle of half a warp": (
        "gather_mix.h", "kept + __shfl_xor_sync(kWarp, given, half)",
        "kept + (threadIdx.x % 32 < 16 ? A(0) : __shfl_xor_sync(kWarp, given, half))",
        None, "collective"),
    "mask without a lane": (
        "pass.h", "kWarp = ~0u", "kWarp = ~1u", None, "does not name its own lane"),
    "two writers of one sum": (
        "gather_mix.h", "lane = lane_of(pass);", "lane = lane_of(pass) % (P * kPair);",
        "thread", "data race"),
}  # fmt: skip


@pytest.mark.parametrize("bug", list(PLANTED))
def test_planted_bug_is_seen(build_module, tmp_path, bug):
    name, right, wrong, sanitizer, report = PLANTED[bug]
    if sanitizer and "clang" in " ".join(COMPILER):
        pytest.skip("needs GCC's sanitizers")
    shutil.copytree(CSRC, tmp_path / "csrc")
    file = tmp_path / "csrc/cuda" / name
    text = file.read_text()
    assert right in text, "the place of the bug has changed"
    file.write_text(text.replace(right, wrong, 1))
    flags, scheduler, preload = SANITIZED[sanitizer] if sanitizer else (["-O0"], [], None)
    module = build_module(("f32",), tmp_path / "csrc", flags, scheduler)
    run = run_child(module, preload)
    assert run.returncode != 0, run.stdout
    assert report in run.stderr, run.stderr[-4000:]
