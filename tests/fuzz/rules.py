"""Random knowledge graphs, DAGs and weights: scores, gradients and ranks against plain PyTorch."""

import random

import torch

from tensus_tn.rules.frontier import WIDTH
from tests.network.networks import random_dag
from tests.rules.graphs import random_graph
from tests.rules.test_frontier import compare


def check(rng: random.Random) -> None:
    graph = random_graph(
        entities=rng.choice([1, 2, 9, 30]),
        relations=rng.randint(1, 4),
        facts=rng.choice([1, 5, 30, 90]),
        seed=rng.randrange(2**31),
        isolated=rng.choice([0, 1, 40]),
        test=0,
    )
    compare(
        graph,
        random_dag(rng, max_nodes=5),
        rng.randint(1, 5),
        width=rng.choice([1, WIDTH]),
        dtype=rng.choice([torch.float64, torch.float64, torch.float32]),
        popular=rng.random() < 0.7,
        floor=rng.choice([None, None, 0.1]),
        own=rng.random() < 0.7,
    )
