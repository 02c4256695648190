"""The reproduction: candidates are scored rightly, runs resume, and the page says what was found."""

import itertools
import math
from functools import partial

import pytest
import torch

pytest.importorskip("torch_geometric")
pytest.importorskip("matplotlib")

from torch.nn.functional import gelu
from torch_geometric.data import HeteroData
from torch_geometric.nn import HGTConv

from benchmarks.reproduce import methods
from benchmarks.reproduce.__main__ import ROOT
from benchmarks.reproduce.candidates import NodeScore
from benchmarks.reproduce.methods import METHODS
from benchmarks.reproduce.peers import PEERS, Peer, QuickHGTConv, RelationHGTConv
from benchmarks.reproduce.report import (
    DIFFMG_TITLES,
    PAIR_TITLES,
    alternating,
    interval,
    labels,
    page,
    pair_verdict,
    ranks,
    scores,
    select,
    spread,
    total_time,
    verdict,
    with_either,
)
from benchmarks.reproduce.results import add, read
from benchmarks.reproduce.runs import MAIN, SEEDS, Run, execute, plan, processor_seconds
from benchmarks.reproduce.settings import (
    BUDGET,
    CHOSEN,
    DATA,
    NODES,
    PAIRS,
    PEER_GRID,
    SOFT,
    TUNED,
    Budget,
)
from tensus_tn import Dag
from tensus_tn.data import planted
from tensus_tn.nn import MetaGraph
from tensus_tn.tasks import Config, make_task


@pytest.mark.slow
def test_the_score_of_nodes_prefers_the_planted_meta_graph():
    config = Config(topology="path", steps=2, hidden=16, lr=0.02, epochs=100, patience=0)
    data = planted(num_nodes=400)
    score = NodeScore(config, make_task(data, "row"))
    dag = Dag.path(2)

    def value(first, second):
        return score([MetaGraph(dag, {(0, 1): first, (1, 2): second})], 0)

    assert value("A", "B") < value("identity", "identity") - 0.03  # the label is not in t itself
    assert value("A", "B") == value("A", "B")


@pytest.mark.parametrize("name", [name for name in PEERS if name not in ("han", "magnn")])
def test_peers_score_the_target_nodes_and_learn(name):
    data = planted(num_nodes=30)
    task = make_task(data, "row")
    torch.manual_seed(0)
    model = Peer(task, PEERS[name](data, 16), 16, 0.0)
    output = task.outputs(model, ["train"])["train"]
    assert output.shape == (15, 2)
    task.loss(output, "train").backward()
    assert all(p.grad is not None for p in model.classifier.parameters())
    assert model.project.maps[0].weight.grad.abs().sum() > 0  # sources reach the target


def test_the_quick_layer_of_hgt_is_that_of_pyg():
    graph = planted(num_nodes=30).to_hetero_data()
    torch.manual_seed(0)
    slow, quick = (kind(16, 16, graph.metadata(), 4) for kind in (HGTConv, QuickHGTConv))
    quick.load_state_dict(slow.state_dict())
    x = {kind: torch.randn(graph[kind].num_nodes, 16) for kind in graph.node_types}
    expected, found = (layer(x, graph.edge_index_dict) for layer in (slow, quick))
    torch.testing.assert_close(found, expected)
    for out in (expected, found):
        sum(y.square().sum() for y in out.values()).backward()
    for name, parameter in quick.named_parameters():
        torch.testing.assert_close(parameter.grad, slow.get_parameter(name).grad)


def test_hgt_attends_to_the_edges_of_each_relation_apart():
    graph = HeteroData(t={"x": torch.randn(4, 6)}, s={"x": torch.randn(5, 6)})
    edges = {
        ("s", "A", "t"): torch.tensor([[0, 1, 2, 3], [0, 0, 0, 1]]),
        ("t", "B", "t"): torch.tensor([[2, 3, 0], [0, 0, 2]]),
        ("t", "C", "s"): torch.tensor([[0, 1], [0, 0]]),
    }
    for kind, index in edges.items():
        graph[kind].edge_index = index
    heads, size, relations = 2, 3, len(edges)
    torch.manual_seed(0)
    layer = RelationHGTConv(6, 6, graph.metadata(), heads)
    for linear in (layer.k_rel, layer.v_rel):
        bound = linear.weight.abs().max()  # Glorot's is 1 for 3 x 3 matrices, PyG's 0.58
        assert 0.8 < bound <= 1.0
    for prior in layer.p_rel.values():
        torch.nn.init.normal_(prior)
    states = {kind: y.view(-1, 3, heads, size) for kind, y in layer.kqv_lin(graph.x_dict).items()}
    sums = {kind: torch.zeros(len(y), heads, size) for kind, y in states.items()}
    for number, (kind, (sources, targets)) in enumerate(edges.items()):
        for node in targets.unique():
            k, _, v = states[kind[0]][sources[targets == node]].unbind(1)
            q = states[kind[-1]][node, 1]
            for head in range(heads):
                matrix, prior = head * relations + number, layer.p_rel["__".join(kind)][0, head]
                keys = k[:, head] @ layer.k_rel.weight[matrix]
                weights = (keys @ q[head] * prior / math.sqrt(size)).softmax(0)
                message = weights @ v[:, head] @ layer.v_rel.weight[matrix]
                sums[kind[-1]][node, head] += message
    changes = layer.out_lin({kind: gelu(y.flatten(1)) for kind, y in sums.items()})
    keep = 1 - torch.sigmoid(torch.tensor(1.0))  # the skip connection as it begins
    expected = {kind: (1 - keep) * changes[kind] + keep * x for kind, x in graph.x_dict.items()}
    torch.testing.assert_close(layer(graph.x_dict, edges), expected)


def test_peers_try_all_settings_but_for_seeds_that_take_what_the_first_one_chose(monkeypatch):
    task = make_task(planted(num_nodes=50), "row")
    trained = partial(METHODS["gcn"], "planted", task)
    free = trained(1)
    monkeypatch.setitem(CHOSEN["gcn"], "planted", 2)
    first, further = trained(0), trained(1)
    assert further["settings"].items() >= PEER_GRID[2].items()
    alone: dict[int, dict[float, float]] = {0: {}, 1: {}}
    for setting in PEER_GRID:
        monkeypatch.setattr(methods, "PEER_GRID", [setting] * 3)
        for seed, losses in alone.items():
            losses[setting["lr"]] = trained(seed)["criterion"]
    for best, losses in ((first, alone[0]), (free, alone[1])):
        assert best["criterion"] == min(losses.values()) < max(losses.values())
        assert losses[best["settings"]["lr"]] == best["criterion"]
    assert further["criterion"] == alone[1][PEER_GRID[2]["lr"]]


@pytest.mark.parametrize(("data", "epochs"), [("acm", 300), ("yelp", None)])
def test_hgt_on_nodes_is_trained_until_validation_stops(data, epochs):
    (setting,) = methods._peer_settings("hgt", data, 3)
    assert setting.get("epochs") == epochs
    assert all("epochs" not in other for other in methods._peer_settings("gat", data, 3))


@pytest.mark.parametrize("name", CHOSEN)
def test_settings_of_further_seeds_are_those_that_the_first_one_chose(name):
    runs = read(ROOT / "benchmarks/results/reproduce.jsonl")
    for data, chosen in CHOSEN[name].items():
        seeds = [seed for seed in range(SEEDS) if Run(data, name, seed) in runs]
        assert 0 in seeds
        for seed in seeds:
            assert runs[data, name, seed]["settings"].items() >= PEER_GRID[chosen].items()


def test_plan_has_the_main_rows_first_and_no_run_twice():
    runs = plan(2)
    assert len(set(runs)) == len(runs)
    assert {run.method for run in runs} <= set(METHODS)
    assert {run.data for run in runs[:25]} == set(DATA)
    assert {run.method for run in runs[:25]} == set(MAIN)
    peers = ("gcn", "gat", "rgcn", "hgt", "diffmg-restarts")
    for data, method, seed in itertools.product(PAIRS, peers, range(SEEDS)):
        assert Run(data, method, seed) in plan(SEEDS)


def test_a_run_that_is_there_is_not_run_again(tmp_path):
    run = Run("no-such-data", "tensus", 3)
    path, done = tmp_path / "runs.jsonl", {**run._asdict(), "test": 1.5}
    add(path, done)
    assert execute(run, path) == done
    with pytest.raises(FileNotFoundError, match="no-such-data"):
        execute(run._replace(seed=4), path)
    assert list(read(path)) == [run]  # nothing is left of a run that failed


def test_the_verdict_on_pairs_has_paper_aim_and_every_other_row():
    results = [result("yelp", "recipe", s, 70.0 + s) for s in range(3)]
    results += [result("yelp", "recipe-regression", 0, 70.5)]  # not random: held against all seeds
    results += [result("yelp", "recipe-rgcn", s, 71.5) for s in (1, 5)]
    amazon, yelp = pair_verdict(results)
    assert amazon == "- **amazon**: not run."
    assert yelp.startswith("- **yelp**: 71.00; paper 70.38 (+0.62); aim 70.80 (+0.20); ")
    assert "against logistic regression on counts and spectral products: 0.50 ± 1.00 (3)" in yelp
    assert "against RGCN: -0.50 (1)" in yelp
    text = "\n".join(scores(results, ["yelp"], titles=PAIR_TITLES))
    assert "| TENSUS, d = 2 | 71.00 ± 1.00 (3) | 70.38 |" in text
    assert "71.00" not in "\n".join(scores(results, ["yelp"], titles=DIFFMG_TITLES))


@pytest.mark.parametrize(("method", "rank"), [("soft", 2), ("soft-cp", 3), ("soft-rank1", 1)])
def test_soft_models_have_the_settings_for_them_and_cp_equal_parameters(method, rank, monkeypatch):
    changes = {"topology": "complete", "steps": 4, "core_lr": 0.3, "epochs": 3}
    monkeypatch.setitem(SOFT, "planted", changes)
    task = make_task(planted(num_nodes=50), "row")
    outcome = METHODS[method]("planted", task, 0)
    assert outcome["settings"]["core_lr"] == 0.3
    assert outcome["settings"]["rank"] == rank
    assert len(outcome["curve"]) == 3


def test_an_average_over_meta_graphs_is_of_the_finalists_of_the_same_search(monkeypatch):
    monkeypatch.setitem(BUDGET, "planted", Budget(rounds=1, batch=4, finalists=3, epochs=0))
    monkeypatch.setitem(TUNED, "planted", {"epochs": 20})
    task = make_task(planted(num_nodes=50), "row")
    best = METHODS["tensus"]("planted", task, 0)
    mean = METHODS["average-meta-graphs"]("planted", task, 0)
    assert mean["search"] == best["search"]  # the same candidates
    assert mean["criterion"] != best["criterion"]
    assert mean["settings"] == best["settings"]


def result(data, method, seed, test, criterion=0.1):
    return {
        "data": data, "method": method, "seed": seed, "val": test + 1, "test": test,
        "train_seconds": 2.0, "search_seconds": 1.0, "criterion": criterion, "curve": [test],
        "search": [[0.5, 0.4]], "core_parameters": 10, "meta_graphs": [],
    }  # fmt: skip


def test_validation_chooses_between_soft_and_searched_for_every_seed():
    results = [result("acm", "tensus", s, 90.0 + s, criterion=0.2) for s in range(3)]
    results += [result("acm", "soft", 0, 99.0, 0.3), result("acm", "soft", 2, 80.0, 0.1)]
    rows = select(with_either(results), "acm", "tensus-either")
    assert [(r["seed"], r["test"], r["chosen"]) for r in rows] == [
        (0, 90.0, "tensus"),  # though the soft one is better on test data
        (2, 80.0, "soft"),
    ]  # seed 1 has no soft model
    assert [processor_seconds(r) for r in rows] == [6.0, 6.0]


def test_tables_and_verdict_tell_losses():
    results = [result("acm", "tensus-either", s, 90.0 + s) for s in range(2)]
    results += [result("acm", "diffmg", s, 92.0 + 2 * s) for s in range(2)]
    assert spread([90.0, 91.0]) == f"90.50 ± {math.sqrt(0.5):.2f} (2)"
    text = "\n".join(scores(results, NODES))
    assert "90.50 ± 0.71 (2) | 94.02" in text
    assert "93.00 ± 1.41 (2) | 92.65" in text
    lines = verdict(results)
    assert any("not reached" in line and "-2.50 ± 0.71" in line for line in lines)
    assert "- **dblp**: not run." in lines
    facts = {"processor": "p", "cores": 2, "torch": "t", "date": "d"}
    assert "93.00" in page(results, facts, "{nodes}{machine}")


def test_ranks_have_confidence_intervals_and_labels_their_number():
    values = [90.0, 91.0, 92.0]
    assert interval(values) == "91.00 ± 2.48 (3)"  # 4.303 / sqrt(3)
    results = [result("dblp", "recipe-d3", seed, value) for seed, value in enumerate(values)]
    row = next(line for line in ranks(results) if line.startswith("| d = 3"))
    assert row.startswith("| d = 3 | 91.00 ± 2.48 (3) | 3.0 | - | - | - | - |")
    text = "\n".join(labels([result("imdb", "more-labels", 0, 67.0)]))
    assert "| 70 % of all labels | - | - | 67.00 (1) |" in text
    in_turns = [result("dblp", "alternating-cp", seed, 90.0 - seed) for seed in range(2)]
    assert "| CP | 89.50 ± 6.35 (2) | 89.0, 90.0 |" in alternating(in_turns)


def test_the_time_is_that_of_planned_runs_and_of_those_that_are_missing_by_their_rows():
    results = [result("acm", "tensus", seed, 90.0) for seed in (0, 1)]
    for run in results:
        run.update(train_seconds=1000.0, search_seconds=800.0)
    planned = len(plan(5))
    expected = (
        f"60 processor minutes for 2 of the {planned} runs of the plan; {planned - 2} are missing. "
        "With the mean of its row for each of these the plan comes to 2.5 processor hours, 1.2 on two "
        f"cores ({planned - 5} runs of rows that have none yet are not counted)"
    )
    assert total_time([*results, result("acm", "no-longer-planned", 0, 90.0)]) == expected

    complete = [result(data, method, seed, 90.0) for data, method, seed in plan(5)]
    for run in complete:
        run.update(train_seconds=36.0, search_seconds=0.0)
    hours = planned / 100
    assert total_time(complete) == (
        f"{hours:.1f} processor hours for all {planned} runs of the plan, {hours / 2:.1f} on two cores"
    )
