"""What is to be learned, and data that do not fit it."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from tensus_tn.data import NodeLabels, even_rows, planted
from tensus_tn.distributed import Processes
from tensus_tn.nn import NodeInputs
from tensus_tn.propagation.blocks import NeighborBlocks
from tensus_tn.tasks import (
    PAIRS,
    Config,
    LinkPrediction,
    NodeClassification,
    Trainer,
    build_model,
    make_task,
)
from tensus_tn.tasks.train import _blocks
from tests.tasks.problems import small_links


def test_loss_of_links_is_that_of_the_protocol():
    task = make_task(small_links())
    scores = torch.randn(180)
    positive, negative = scores[:90].sigmoid(), (-scores[90:]).sigmoid()
    expected = -(positive.log() + negative.log()).mean()
    assert torch.allclose(task.loss(scores, "train"), expected)
    pairs = task.pairs["train"]
    assert ((pairs[0] % 2) == (pairs[1] % 2)).tolist() == [True] * 90 + [False] * 90


def test_tasks_refuse_data_of_the_other_kind(task):
    with pytest.raises(TypeError, match="needs pairs"):
        LinkPrediction(planted(num_nodes=8))
    with pytest.raises(TypeError, match="needs labels"):
        NodeClassification(small_links())


def test_a_target_that_no_relation_ends_in_is_refused():
    data = planted(num_nodes=8)
    relations = {name: data.relations[name] for name in "AC"}
    with pytest.raises(ValueError, match="no relation of 'planted' ends in 't'"):
        make_task(replace(data, relations=relations))


def with_labels(change, **options):
    """The planted graph with other labels, made from the old ones."""
    data = planted(num_nodes=400)
    old = data.target
    labels = change(old.labels.clone(), old.nodes["test"])
    return make_task(replace(data, target=NodeLabels("t", labels, old.nodes, 2, **options)))


def perfect(task):
    """Class scores of validation and test nodes by the labels of the planted graph."""
    truth = make_task(planted(num_nodes=400)).labels
    scores = 4.0 * F.one_hot(truth, 2) - 2
    return {split: scores[task.nodes[split]] for split in ("val", "test")}


def test_where_a_node_may_have_several_classes_each_has_a_loss_of_its_own():
    task = with_labels(lambda labels, test: F.one_hot(labels.clamp_min(0), 2))
    output = torch.randn(len(task.nodes["val"]), 2)
    labels = task.labels[task.nodes["val"]].float()
    chance = output.sigmoid()
    expected = -(labels * chance.log() + (1 - labels) * (1 - chance).log()).mean()
    torch.testing.assert_close(task.loss(output, "val"), expected)
    assert torch.equal(task.predict(output), (chance > 0.5).long())
    assert task.scores(perfect(task)["val"], "val") == {"macro_f1": 1.0, "micro_f1": 1.0}
    assert task.scores(torch.full_like(output, -1.0), "val") == {"macro_f1": 0.0, "micro_f1": 0.0}


def unknown(labels, test):
    labels[test] = -1
    return labels


def shuffled(labels, test):
    g = torch.Generator().manual_seed(0)
    labels[test] = labels[test[torch.randperm(len(test), generator=g)]]
    return labels


def several(change):
    return lambda labels, test: F.one_hot(change(labels, test).clamp_min(0), 2)


@pytest.mark.parametrize(
    ("change", "doubtful", "reason"),
    [
        (lambda labels, test: labels, True, ""),
        (several(lambda labels, test: labels), True, ""),
        (unknown, False, "unknown"),
        (shuffled, True, "random"),
        (several(shuffled), True, "random"),
        (shuffled, False, ""),  # labels that are known are bad luck
    ],
)
def test_labels_that_are_unknown_or_random_are_not_scored(change, doubtful, reason):
    task = with_labels(change, doubtful=doubtful)
    assert reason in task.why_unscored(perfect(task))
    assert bool(reason) == bool(task.why_unscored(perfect(task)))


def test_a_model_that_learned_nothing_is_scored():
    task = with_labels(lambda labels, test: labels, doubtful=True)
    g = torch.Generator().manual_seed(0)
    nothing = {s: torch.randn(len(task.nodes[s]), 2, generator=g) for s in ("val", "test")}
    assert task.why_unscored(nothing) == ""


def test_a_bias_learns_from_pairs_and_edges_too():
    task = make_task(small_links())
    torch.manual_seed(0)
    model = build_model(Config(hidden=4, **{**PAIRS, "dropout": 0.0}), task.spec)
    for parameter in model.bias_parameters():
        torch.nn.init.normal_(parameter)
    pairs = task.pairs["train"]
    full, alone = model(task.x, task.graph, pairs), model.bias_scores(task.x, pairs)
    edges = model.bias_scores(task.x, task.known)
    expected = sum(
        -(score[:90].sigmoid().log() + (1 - score[90:].sigmoid()).log()).mean()
        for score in (full, alone)
    )
    expected = expected - edges.sigmoid().log().sum() / 90
    torch.testing.assert_close(task.objective(model, "train"), expected)
    assert task.known.shape == (2, 100)
    model.bias = None
    torch.testing.assert_close(
        task.objective(model, "train"), task.loss(model(task.x, task.graph, pairs), "train")
    )


@pytest.mark.parametrize(("split", "world"), [("train", 1), ("val", 2)])
def test_the_losses_of_blocks_are_that_of_all_pairs(split, world):
    """Of an epoch of all neighbours, each with its share: bias, pairs and edges, no matter by whom."""
    task = make_task(small_links())
    torch.manual_seed(0)
    config = Config(hidden=4, batch_size=8 * world, **{**PAIRS, "dropout": 0.0})
    model = build_model(config, task.spec)
    for parameter in model.bias_parameters():
        torch.nn.init.normal_(parameter)
    total = 0.0
    for rank in range(world):
        blocks = _blocks(task, split, config, Processes(None, rank, world))
        blocks.generator.manual_seed(0)
        for block in blocks:
            total += task.block_objective(model, block, split) * len(block.rows)
    torch.testing.assert_close(total / task.size(split), task.objective(model, split))
    model.bias = None
    (whole,) = NeighborBlocks(blocks.graph, task.seeds(split), [-1] * config.steps)
    torch.testing.assert_close(
        task.block_objective(model, whole, split), task.objective(model, split)
    )


class ScoreOfEnds(torch.nn.Module):
    """A model of a user's own that is its bias alone."""

    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.randn(30))

    def bias_parameters(self):
        return [self.bias]

    def bias_scores(self, x, pairs):
        return self.bias[pairs[0]]

    def forward(self, x, graph, pairs):
        return self.bias_scores(x, pairs)


def test_any_model_may_have_a_bias_with_its_loss_and_learning_rate():
    task = make_task(small_links(), "diffmg")
    torch.manual_seed(0)
    model = ScoreOfEnds()
    liked, disliked = model.bias[task.pairs["train"][0]].chunk(2)
    pair_loss = -(liked.sigmoid().log() + (1 - disliked.sigmoid()).log()).mean()
    edges = -model.bias[task.known[0]].sigmoid().log().sum() / 90
    torch.testing.assert_close(task.objective(model, "train"), 2 * pair_loss + edges)
    settings = Config(**PAIRS, bias_lr=0.2, bias_weight_decay=0.5)
    (group,) = Trainer(model, task, settings).weight_optimizer.param_groups
    assert (group["lr"], group["weight_decay"]) == (0.2, 0.5)
    assert group["params"][0] is model.bias


def test_pairs_see_ids_degrees_spectrum_and_features_where_there_are_some():
    data = small_links()
    features = {"user": torch.randn(30, 3)}
    x = make_task(replace(data, features=features)).x
    assert list(x["user"].present()) == ["features", "id", "degree", "spectral"]
    assert list(x["item"].present()) == ["id", "degree", "spectral"]
    assert x["item"].spectral.shape == (20, 19)


def test_inputs_of_pairs_may_be_left_out():
    x = make_task(small_links(), inputs=("id", "degree")).x
    assert list(x["user"].present()) == list(x["item"].present()) == ["id", "degree"]
    one_hot = make_task(small_links(), inputs=["features"]).x
    assert torch.equal(one_hot["item"].to_dense(), torch.eye(20))
    with pytest.raises(ValueError, match="some of features, id, degree, spectral, got \\['ids'\\]"):
        make_task(small_links(), inputs=["ids"])
    data = replace(small_links(), features={"user": torch.randn(30, 3)})
    alone = LinkPrediction(data, inputs=["features", "spectral"])
    assert list(alone.x["item"].present()) == ["spectral"]
    counts = {**data.node_counts, "brand": 2}
    with pytest.raises(ValueError, match="nodes of type 'brand' have none: add 'id'"):
        make_task(replace(data, node_counts=counts), inputs=["features", "spectral"])


@pytest.mark.parametrize("data", [planted(num_nodes=50), small_links()])
def test_rows_of_words_become_equally_long_unless_they_are_to_stay(data):
    kind, count = next(iter(data.node_counts.items()))
    words = torch.eye(9)[torch.arange(count) % 9] * torch.arange(1, count + 1)[:, None]
    for x in (words, -words, words + 1):
        for even in (True, False):
            given = make_task(replace(data, features={kind: x}), even=even).x[kind]
            seen = given.features if isinstance(given, NodeInputs) else given
            torch.testing.assert_close(seen, even_rows(x) if even and x is words else x)
