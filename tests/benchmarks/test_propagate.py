"""The benchmark runs, and every peer computes what this library computes (the run refuses else)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.propagate import bound, graphs, heads, measure, peers, report, roof, step
from tensus_tn.dag import Dag

ROOT = Path(__file__).parents[2]


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("normalisation", graphs.NORMALISATIONS)
@pytest.mark.parametrize("peer", [None, *peers.PEERS], ids=lambda p: p.title if p else peers.OURS)
def test_every_peer_gives_the_same_numbers(peer, normalisation):
    problem, dag = graphs.load("tiny", normalisation), Dag.complete(3)
    try:
        run = peers.make_run(peer, problem, dag)
    except peers.UnsupportedError as reason:
        pytest.skip(str(reason))
    h, weights, grad = measure.inputs(problem, dag, 2, 8)
    right = measure.expected(problem, dag, h, weights, grad)
    found = measure.errors(measure.results(run, h, weights, grad), right)
    assert max(found.values()) < measure.TOLERANCE


def test_the_judge_is_the_dense_formula():
    problem, dag = graphs.load("tiny"), Dag([(0, 1)])
    h, weights, grad = measure.inputs(problem, dag, 2, 8)
    matrices = torch.stack(
        [torch.from_numpy(m.toarray()).double() for m in problem.graph.to_scipy().values()]
    )
    (w,) = (weight.detach().double() for weight in weights.values())
    y = torch.einsum("cpq,cnm,mpf->nqf", w, matrices, h.detach().double())
    torch.testing.assert_close(measure.expected(problem, dag, h, weights, grad)["y"], y)


def test_a_wrong_peer_is_refused():
    problem = graphs.load("tiny")
    wrong = peers.Peer(
        "wrong", "PyTorch", lambda problem: lambda h, w: 2 * peers.tensus(problem)(h, w)
    )
    with pytest.raises(AssertionError, match="wrong computes something else"):
        measure.run_case(problem, [wrong], seconds=0.01)


def test_a_training_step_is_timed_once_all_rows_give_the_same_loss(monkeypatch):
    assert list(step.run_case("planted", seconds=0.01)) == [
        "as it is", "all rows, then select", "the same with torch.sparse.mm",
    ]  # fmt: skip
    scores = step.AllRows.forward
    monkeypatch.setattr(step.AllRows, "forward", lambda *inputs: scores(*inputs).roll(1, 0))
    with pytest.raises(AssertionError):
        step.run_case("planted", seconds=0.01)


def test_heads_are_timed_in_both_ways_once_they_agree():
    case = heads.run_heads(graphs.load("tiny"), 2, features=8, seconds=0.01)
    for way in ("forward", "both"):
        assert set(case[way]) == {heads.ONE, heads.TOGETHER, heads.APART}
        assert case[way][heads.ONE]["ratio"] == 1
    table = report.heads_table({"tiny/2": case})
    assert "tiny/2" in table
    assert f"{case['both'][heads.TOGETHER]['ratio']:.2f}x" in table


@pytest.mark.slow
def test_loops_are_timed_beside_every_rank_and_way():
    times = bound.run_case("tiny", [1, 2], seconds=0.01)
    whos, ways = ("ours", "loops"), ("forward", "backward")
    assert set(times) == {(who, rank, way) for who in whos for rank in (1, 2) for way in ways}
    made = {
        (who, rank, way): 1e-3 * rank * (1 + (who == "ours")) * (1 + 2 * (way == "backward"))
        for who, rank, way in times
    }
    assert bound.table("tiny", [1, 2], made).splitlines() == [
        "| tiny, rank 1 | 2 ms | 6 ms | 3.00 | 1.00 | 1.00 | 1 ms | 3 ms | 3.00 | 1.00 | 1.00 |",
        "| tiny, rank 2 | 4 ms | 12 ms | 3.00 | 2.00 | 2.00 | 2 ms | 6 ms | 3.00 | 2.00 | 2.00 |",
    ]


def test_loops_that_can_not_be_compiled_are_an_error(monkeypatch):
    monkeypatch.setattr(roof, "loops", lambda *_, **__: {})
    with pytest.raises(RuntimeError, match="need a compiler"):
        bound.run_case("tiny", [1], seconds=0.01)


def test_quick_command_writes_results_a_table_and_a_page(tmp_path):
    output, page = tmp_path / "out.json", tmp_path / "page.md"
    command = [sys.executable, "-m", "benchmarks.propagate", "--quick", "--peers", "segments"]
    command += ["--output", str(output), "--page", str(page)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    stored = json.loads(output.read_text())
    assert set(stored["cases"]) == {
        f"tiny/{n}/K={k}" for n in graphs.NORMALISATIONS for k in (4, 1)
    }
    for case in stored["cases"].values():
        rows = case["peers"]
        assert rows[peers.OURS]["forward"]["median"] > 0
        assert rows["CSR segments, loops folded"]["both"]["ratio"] > 0
    assert stored["machine"]["torch"] == torch.__version__
    assert "CSR segments, loops folded" in done.stdout
    assert set(stored["heads"]) == {f"tiny/{count}" for count in heads.HEADS}
    assert page.read_text().count(report.MARK) == 1
