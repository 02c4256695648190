"""Training: batches, the best epoch, checkpoints, and what a planted rule needs."""

import pytest
import torch

from tensus_tn.rules import RuleModel, planted_rules
from tensus_tn.rules.training import Settings, TrainingQueries
from tests.rules.graphs import random_graph


@pytest.mark.parametrize("width", [1, 8])
def test_batches_hold_every_query_once(width):
    graph = random_graph(20, 3, 90)
    training = TrainingQueries(graph)
    batches = list(
        training.batches(Settings(seed=3, batch=len(training) // 4), len(training), 0, width)
    )
    own = torch.cat([b.own + len(graph.train) * (b.relation >= 3) for b in batches])
    assert torch.equal(own.sort().values, torch.arange(2 * len(graph.train)))
    for batch in batches:
        assert torch.equal(batch.relation, batch.relation.sort().values)
        fact = graph.train[batch.own]
        there = batch.relation < 3
        assert torch.equal(torch.where(there, fact[:, 0], fact[:, 2]), batch.start)
        assert torch.equal(torch.where(there, fact[:, 2], fact[:, 0]), batch.answer)
        if width > 1:  # blocks of one relation stay together: few are not full
            sizes = batch.relation.unique_consecutive(return_counts=True)[1]
            assert int((sizes % width > 0).sum()) <= 6
    few = list(training.batches(Settings(batch=5), 10, 0, width))
    assert sum(len(b.relation) for b in few) == 10


@pytest.mark.parametrize("weights", ["signed", "softmax"])
def test_resumed_equals_uninterrupted(tmp_path, weights):
    graph = planted_rules(num_chains=40)
    settings = {"batch": 40, "progress": False, "patience": 0, "lr": 0.05}
    whole = RuleModel(graph, steps=2, rank=2, weights=weights)
    report = whole.fit(epochs=4, **settings)
    file = tmp_path / "run.pt"
    stopped = RuleModel(graph, steps=2, rank=2, weights=weights)

    class InterruptedRunError(Exception):
        pass

    original = stopped.rank
    calls = []

    def rank(*arguments, **options):
        calls.append(1)
        if len(calls) == 3:
            raise InterruptedRunError
        return original(*arguments, **options)

    stopped.rank = rank
    with pytest.raises(InterruptedRunError):
        stopped.fit(epochs=4, checkpoint=file, **settings)
    resumed = RuleModel(graph, steps=2, rank=2, weights=weights, seed=5)
    again = resumed.fit(epochs=4, checkpoint=file, resume=True, **settings)
    assert again.history == report.history
    assert again.best_epoch == report.best_epoch
    for mine, theirs in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    other = RuleModel(graph, steps=2, rank=3, weights=weights)
    with pytest.raises(ValueError, match=r"run\.pt is of another model"):
        other.fit(checkpoint=file, resume=True, **settings)


def test_another_run_is_not_resumed(tmp_path):
    graph = planted_rules(num_chains=40)
    file, settings = tmp_path / "run.pt", {"epochs": 1, "progress": False, "lr": 0.05}
    RuleModel(graph, steps=2).fit(checkpoint=file, **settings)

    def resume(train=None, valid=None, **changes):
        model = RuleModel(graph, steps=2)
        return model.fit(train, valid, checkpoint=file, resume=True, **{**settings, **changes})

    assert len(resume(epochs=2).history) == 2
    for name, value in {"lr": 0.5, "batch": 7, "seed": 3, "patience": 1}.items():
        with pytest.raises(
            ValueError, match=rf"run\.pt is of another run: {name}: .* there, {value} here"
        ):
            resume(**{name: value})
    for data in ((graph.train[:9], None), (None, graph.valid[:3])):
        with pytest.raises(ValueError, match="of another run: data: "):
            resume(*data)


@pytest.mark.parametrize("batch", [1, 4, 16])
def test_an_epoch_has_as_many_batches_as_it_says(batch):
    training = TrainingQueries(random_graph(facts=40))
    batches = list(training.batches(Settings(batch=batch), 60, 0, 16))
    assert len(batches) == round(60 / batch)
    assert sum(len(b.relation) for b in batches) == 60


def test_triples_by_name_and_wrong_ones():
    graph = planted_rules(num_chains=40)
    e, r = graph.entities, graph.relations
    named = [(e[h], r[k], e[t]) for h, k, t in graph.valid[:3].tolist()]
    model = RuleModel(graph, steps=2)
    report = model.fit(valid=named, epochs=1, progress=False)
    assert report.best_mrr == pytest.approx(model.rank(graph.valid[:3]).mrr)
    before = model.core_0.clone()
    for wrong, message in (
        ({"valid": torch.tensor([[10**6, 0, 1]])}, "triples"),
        ({"valid": ("a", "r", "b")}, r"expected triples \(head, relation, tail\), got 'a'"),
        ({"train": [("a", "r")]}, r"got \('a', 'r'\)"),
        ({"train": graph.train[:0]}, "there are no training triples"),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit(**wrong, epochs=1, progress=False)
    assert torch.equal(model.core_0, before)


def test_the_best_epoch_is_kept_and_training_stops():
    graph = planted_rules(num_chains=60)
    model = RuleModel(graph, steps=2, rank=2)
    report = model.fit(epochs=12, patience=2, batch=60, progress=False)
    scores = [record["valid_mrr"] for record in report.history]
    assert report.best_epoch == scores.index(max(scores)) + 1
    assert len(report.history) == min(12, report.best_epoch + 2)
    assert model.rank(graph.valid).mrr == max(scores) == report.best_mrr
    assert "best epoch" in repr(report)


def test_rank_1_can_not_learn_what_rank_2_learns():
    graph = planted_rules()
    kind = [int(graph.entities[t].split("_")[1]) for t in graph.test[:, 2].tolist()]
    bound = sum(sorted(kind.count(k) for k in set(kind))[-2:]) / len(kind)
    found = {}
    for rank in (1, 2):
        model = RuleModel(graph, steps=2, rank=rank)
        model.fit(epochs=8, batch=100, progress=False)
        found[rank] = model.rank(graph.test).metrics("pessimistic", ask="tail")["hits@1"]
    assert found[1] <= bound < 0.6
    assert found[2] == 1.0
    rules = {str(rule) for rule in model.rules("r", 4)}
    assert rules == {f"r(x, y) <- a{k}(x, z), b{k}(z, y)" for k in (1, 2, 3, 4)}


def test_training_on_some_triples_and_without_validation():
    graph = random_graph()
    model = RuleModel(graph, steps=1)
    report = model.fit(graph.train[:5], epochs=3, progress=False)
    assert report.best_epoch == 3
    assert "no validation triples" in repr(report)
    assert "valid_mrr" not in report.history[0]
    assert report.history[-1]["loss"] < report.history[0]["loss"]
    with pytest.raises(ValueError, match="are not training triples"):
        model.fit(graph.test, epochs=1, progress=False)


def test_a_loss_that_is_not_finite_is_an_error():
    model = RuleModel(random_graph(), steps=1)
    with torch.no_grad():
        model.core_0.fill_(float("nan"))
    with pytest.raises(FloatingPointError, match="smaller lr"):
        model.fit(epochs=1, progress=False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs must be a positive integer"),
        ({"lr": -1.0}, "lr must be a positive number"),
        ({"decay": -1.0}, "must not be negative"),
        ({"resume": True}, "resume needs a checkpoint"),
    ],
)
def test_errors(settings, message):
    with pytest.raises(ValueError, match=message):
        Settings(**settings)
