"""The benchmark of rules: its peers compute what we compute, and a run is written once."""

import json

import pytest
import torch

from benchmarks.rules import memory, peers, report, results, speed
from tensus_tn.rules import RuleModel, planted_rules
from tests.rules.graphs import random_graph, training_queries


def test_the_peers_have_our_scores():
    graph = random_graph(12, 3, 30)
    queries = training_queries(graph, own=False)
    for ties, peer in (("node", peers.grouped), ("global", peers.drum)):
        model = RuleModel(graph, steps=3, rank=2, ties=ties, popularity=False)
        asked = torch.stack([queries.relation, queries.start], dim=1)
        matrices = peers.operators(model.walks)
        with torch.no_grad():
            got = peer(model.walks, matrices, model.weights(), queries)
            relations = peers.relation_graph(model.walks)
            dense = peers.dense(relations, model.dag, model.weights(), queries)
        torch.testing.assert_close(got, model.scores(asked), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(dense, model.scores(asked), rtol=1e-4, atol=1e-5)


def test_speed_writes_a_line_for_each_way(tmp_path, capsys):
    out = tmp_path / "speed.jsonl"
    threads = torch.get_num_threads()
    try:
        speed.measure(planted_rules(num_chains=20), "planted", 2, 2, 8, 1, out)
    finally:
        torch.set_num_threads(threads)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["way"] for row in rows] == [
        "frontier",
        "propagate, dense",
        "torch.sparse, grouped",
        "DRUM's formulation",
    ]


def test_a_run_is_written_once(tmp_path):
    out = tmp_path / "results.jsonl"
    threads = torch.get_num_threads()
    try:
        for _ in range(2):
            results.run(planted_rules(num_chains=20), "planted", "CP", 0, out, steps=2, rank=3)
        results.run(planted_rules(num_chains=20), "planted", "CP", 0, out, steps=2, rank=1)
    finally:
        torch.set_num_threads(threads)
    rows = results.read(out)
    assert [(row["method"], row["steps"], row["rank"]) for row in rows] == [
        ("CP", 2, 3),
        ("CP", 2, 1),
    ]
    assert all(0 < row["test"]["mrr"] <= 1 for row in rows)


def test_memory_is_written(tmp_path):
    out = tmp_path / "memory.jsonl"
    threads = torch.get_num_threads()
    try:
        memory.measure(planted_rules(num_chains=20), "planted", 2, 2, 8, out)
    finally:
        torch.set_num_threads(threads)
    [row] = results.read(out)
    assert row["grown_megabytes"] >= 0
    states = 1 + 2 * 2 + 2 * 1  # the start, and the other states with their gradients
    graph = planted_rules(num_chains=20)
    assert row["dense_megabytes"] == pytest.approx(8 * graph.num_entities * states * 4 / 2**20)


def test_curves_are_means_over_seeds():
    pytest.importorskip("matplotlib")
    from benchmarks.rules import curves

    rows = [
        {"rank": rank, "steps": 2, "valid": {"mrr": mrr}}
        for rank, mrr in [(2, 0.5), (1, 0.25), (2, 0.7)]
    ]
    assert curves.means(rows, "steps", "rank") == {2: {1: 0.25, 2: pytest.approx(0.6)}}
    asked = {"method": "TENSUS", "asked_steps": 2, "asked_rank": 1}
    fig = curves.figure([row | asked | {"data": name} for row in rows for name in ("a", "b")])
    assert [ax.get_title() for ax in fig.axes] == ["a: rank", "a: length", "b: rank", "b: length"]
    assert fig.axes[0].lines[0].get_ydata() == pytest.approx([0.25, 0.6])
    curves.plt.close(fig)


def test_tables_are_filled_anew():
    def row(seed, steps, rank, mrr, method="TENSUS"):
        metrics = {"mrr": mrr, "hits@10": 0.9}
        ties = {"by ties": dict.fromkeys(("optimistic", "pessimistic"), metrics)}
        asked = {"asked_steps": steps, "asked_rank": rank, "seed": seed, "method": method}
        found = {"steps": steps or 3, "rank": rank or 4, "parameters": 7, "cpu_seconds": 2.0}
        return {"data": "d", **asked, **found, "valid": metrics, "test": metrics | ties}

    rows = [row(0, None, None, 0.25), row(1, None, None, 0.75), row(0, None, 1, 0.1)]
    table = report.defaults_table(rows).splitlines()
    assert table[2].startswith("| d | TENSUS (tensor train) | 3, 4 | 7 | 2 | 0.500 ± 0.354 |")
    assert table[3].startswith("| d | rank 1 | 3, 1 | 7 | 1 | 0.100 |")
    assert len(table) == 4
    grid = report.grid_table([*rows, row(0, 2, 1, 0.2), row(0, 2, 3, 0.4), row(1, 2, 3, 0.6)])
    assert grid.splitlines()[2:] == ["| d | TENSUS (tensor train) | 2 | 1 to 2 | 0.200 | 0.500 |"]
    ways = {"frontier": 0.002, report.PEERS[0]: 0.08, report.PEERS[1]: 0.06}
    speeds = [{"data": "d", "way": w, "median": x, "width": 1} for w, x in ways.items()]
    assert report.speed_table(speeds).splitlines()[2] == "| d | 1 | 2.0 |  | 80 | 60 | 30 |"
    page = "a\n<!-- grid -->\n| old |\n| older |\n\nb\n"
    assert report.fill(page, {"grid": "| new |"}) == "a\n<!-- grid -->\n| new |\n\nb\n"
    with pytest.raises(ValueError, match="no mark <!-- speed -->"):
        report.fill(page, {"speed": ""})
