"""Small settings, tasks and models for the tests of training."""

import torch
from torch import nn

from tensus_tn.data import Dataset, NodePairs, Relation
from tensus_tn.tasks import (
    Config,
    Trainer,
    build_model,
    preset,
)

SMALL = Config().with_values({**preset("planted"), "progress": False, "epochs": 6, "dropout": 0.3})


def small_links(num_users=30, num_items=20):
    """Users like items of their own parity; they know others of it."""
    random = torch.Generator().manual_seed(0)
    pairs = torch.cartesian_prod(torch.arange(num_users), torch.arange(num_items) + num_users)
    pairs = pairs[torch.randperm(len(pairs), generator=random)]
    alike = (pairs[:, 0] % 2) == (pairs[:, 1] % 2)
    liked, other = pairs[alike], pairs[~alike]
    edges = liked[:100].T
    relations = {
        "UI": Relation("item", "user", edges.flip(0)),
        "IU": Relation("user", "item", edges),
    }
    splits = [
        dict(zip(("train", "val", "test"), side[100:250].split([90, 30, 30]), strict=True))
        for side in (liked, other)
    ]
    target = NodePairs("user", "item", *splits)
    return Dataset("links", {"user": num_users, "item": num_items}, relations, target)


def train(config, task):
    torch.manual_seed(config.seed)
    trainer = Trainer(build_model(config, task.spec), task, config)
    trainer.run()
    return trainer


def assert_same_state(one, two):
    assert list(one) == list(two)
    for key, value in one.items():
        assert torch.equal(value, two[key]), key


class Constant(nn.Module):
    """The same scores for every node; a model of a user's own."""

    def __init__(self):
        super().__init__()
        self.weight, self.core = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))

    def arch_parameters(self):
        return [self.core]

    def forward(self, x, graph):
        return (self.weight + self.core).expand(60, 2)
