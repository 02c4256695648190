"""The check of a machine: what it says where all is right, and that it sees what is wrong."""

import pytest
import torch

from tensus_tn import RelationGraph, verify
from tensus_tn.cli import main
from tensus_tn.propagation.functional import propagate_dag


def test_the_report_goes_to_the_screen_and_to_a_file(tmp_path, capsys):
    out = tmp_path / "report.md"
    assert verify.verify("cpu", str(out), nodes=60)
    printed, text = capsys.readouterr().out, out.read_text()
    assert text in printed
    for part in ("Everything is right", "instruction set", "with a hub, 60 nodes", "bfloat16"):
        assert part in text
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 4
    assert all(float(row[3]) > 0 and float(row[5]) > 0 for row in rows)


@pytest.mark.parametrize("title", list(verify.small_graphs()))
def test_the_oracle_is_the_sum_over_all_walks(title):
    """Its dense matrices are those that the graph says it applies."""
    graph = verify.small_graphs()[title]
    matrices = [torch.from_numpy(m.toarray()) for m in graph.to_scipy().values()]
    h = torch.randn(graph.num_nodes, 1, 3, dtype=torch.float64)
    w = torch.randn(len(matrices), dtype=torch.float64)
    dag = verify.Dag.path(1)
    y = verify._dense(graph, dag, h, {(0, 1): w[:, None, None]})[:, 0]
    expected = sum((a * m @ h[:, 0] for a, m in zip(w, matrices, strict=True)), torch.zeros(1))
    torch.testing.assert_close(y, expected.expand_as(y))


def test_a_wrong_kernel_is_seen(tmp_path, capsys, monkeypatch):
    def forgets_loops(graph, dag, h, weights):
        return propagate_dag(
            RelationGraph(**{**vars(graph), "loop": 0 * graph.loop}), dag, h, weights
        )

    monkeypatch.setattr(verify, "propagate_dag", forgets_loops)
    monkeypatch.setattr(verify, "_timings", lambda device, nodes: [])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["verify", "--device", "cpu"])
    assert end.value.code == 1
    text = (tmp_path / "tensus-tn-verify.md").read_text()
    assert "**WRONG**: no edges, rank 1, 1 features, float64: relative error 1.0e+00" in text
    assert "Everything is right" not in text
