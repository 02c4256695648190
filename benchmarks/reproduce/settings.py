"""What is run: data sets, budgets, and settings found on validation data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

NODES, PAIRS = ("dblp", "acm", "imdb"), ("amazon", "yelp")
DATA = NODES + PAIRS
PARTIAL = "douban"  # incomplete: run for its speed, and not in any table of the paper


@dataclass(frozen=True)
class Budget:
    """How much a search may spend: the same for every method that searches by scores."""

    rounds: int
    batch: int
    finalists: int  # trained by the full protocol, and chosen from by validation
    epochs: int  # of a short training, for pairs


_PAIRS = Budget(rounds=2, batch=5, finalists=1, epochs=12)
BUDGET = {
    **dict.fromkeys(NODES, Budget(rounds=4, batch=12, finalists=3, epochs=0)),
    **dict.fromkeys((*PAIRS, PARTIAL), _PAIRS),
}

#: GEMS: generations, meta-graphs in each, and epochs of the training that scores one.
GEMS = Budget(rounds=4, batch=6, finalists=1, epochs=12)

#: Of every final training on pairs: epochs without a better validation AUC before it stops. DiffMG
#: always runs 200 epochs.
PAIR_PATIENCE = 30

#: Searches of DiffMG that cost about as much as one of ours; its authors advise several, too.
DIFFMG_RESTARTS = 3

#: Differences from DiffMG's settings, for all methods that search by scores: the best of a small
#: grid on validation data, with the meta-graph that DiffMG published.
TUNED: dict[str, dict[str, Any]] = {
    "dblp": {},
    "acm": {"lr": 0.005, "weight_decay": 0.001, "state_dropout": 0.8},
    "imdb": {"lr": 0.002, "weight_decay": 0.01, "state_dropout": 0.9},
    "amazon": {},
    "yelp": {},
    PARTIAL: {},
}

#: Differences from DiffMG's settings, for all soft models: chosen for TENSUS at d = 2 by the
#: validation scores of seed 0, and given to CP, d = 1 and GTN as they are.
SOFT: dict[str, dict[str, Any]] = {
    "dblp": {},
    "acm": {},
    "imdb": {},
    "amazon": {"updates": "alternating", "core_lr": 0.2},
    "yelp": {"core_lr": 0.003, "weight_decay": 0.001},
}

#: The meta-graphs that DiffMG evaluated, one for each network: numbers of relations (then identity,
#: then zero) on the links k -> k + 1, and on 0 -> 2; 0 -> 3, 1 -> 3; 0 -> 4, 1 -> 4, 2 -> 4.
PUBLISHED = {
    "dblp": [([4, 2, 1, 1], [5, 5, 2, 5, 5, 1])],
    "acm": [([3, 4, 0, 0], [1, 5, 5, 5, 2, 0])],
    "imdb": [([0, 1, 3, 2], [5, 5, 5, 5, 5, 5])],
    "amazon": [([4, 3, 2, 0], [1, 1, 9, 9, 0, 8]), ([5, 4, 2, 1], [9, 2, 7, 9, 8, 6])],
    "yelp": [([6, 5, 4, 3], [9, 4, 10, 10, 9, 9]), ([4, 5, 9, 2], [3, 2, 8, 10, 5, 10])],
}

#: The number of layers of GTN, where it is a path in DiffMG's network.
GTN_STEPS = {"dblp": 3, "acm": 2, "imdb": 3, "amazon": 3, "yelp": 3}
#: GTN's own program, by its authors' commands: layers and epochs; all have the rest in common.
GTN_COMMANDS = {"dblp": (1, 50), "acm": (1, 100), "imdb": (2, 50)}
GTN_SETTINGS: dict[str, Any] = {
    "lr": 0.02, "weight_decay": 0.001, "patience": 0, "select": "metric",
}  # fmt: skip

#: Peers' learning rates, weight decays and dropout to choose from.
PEER_GRID: tuple[dict[str, Any], ...] = (
    {"lr": 0.005, "weight_decay": 0.001, "dropout": 0.5},
    {"lr": 0.01, "weight_decay": 0.005, "dropout": 0.7},
    {"lr": 0.002, "weight_decay": 0.001, "dropout": 0.3},
)
#: Where a seed is slow, which of them validation preferred for seed 0, which trains all; further seeds
#: train that one. In the rows that are not here every seed trains all.
CHOSEN: dict[str, dict[str, int]] = {
    "gcn": {"amazon": 0, "yelp": 2},
    "gat": {"amazon": 0, "yelp": 2},
    "rgcn": {"amazon": 0, "yelp": 2},
    "hgt": {"dblp": 2, "acm": 2, "imdb": 2, "amazon": 1, "yelp": 2},
}
#: DiffMG's 50 epochs are not enough for HGT on nodes: it is trained until validation stops.
PATIENT: dict[str, dict[str, Any]] = {"hgt": {"epochs": 300, "patience": 30}}

#: Cyclic meta-paths for the walks of metapath2vec, and how many walks start at each node.
WALK_PATHS = {
    "dblp": ["PA", "CP", "PC", "AP"],
    "acm": ["AP", "PA", "SP", "PS"],
    "imdb": ["AM", "MA", "DM", "MD"],
}
WALKS = 60

#: Soft training in turns, DiffMG's network and patience: where single seeds of some ranks got stuck.
ALTERNATING: dict[str, Any] = {"updates": "alternating", "core_lr": 0.3}

#: Networks in an average over seeds; of meta-graphs, all finalists of a search are averaged.
AVERAGED = 5

#: Labels to train with, 70 % of all, to see what the number of labels is worth.
MORE_LABELS = {"dblp": 2841, "acm": 2118, "imdb": 2058}

#: What the library's inputs and loss for pairs should reach, and which rows there have no seed.
PAIR_AIMS = {"amazon": 78.9, "yelp": 70.8}
NOT_RANDOM = ("recipe-bias", "recipe-degrees", "recipe-regression")

#: The paper's tables; its authors copied the rows of all but TENSUS and GTN from DiffMG's paper.
PAPER: dict[str, dict[str, float]] = {
    "metapath2vec": {"dblp": 85.53, "acm": 87.61, "imdb": 35.21, "amazon": 58.17, "yelp": 51.98},
    "gcn": {"dblp": 87.30, "acm": 91.60, "imdb": 56.89, "amazon": 66.64, "yelp": 58.98},
    "gat": {"dblp": 93.71, "acm": 92.33, "imdb": 58.14, "amazon": 55.70, "yelp": 56.55},
    "han": {"dblp": 92.83, "acm": 90.96, "imdb": 56.77, "amazon": 67.35, "yelp": 64.28},
    "magnn": {"dblp": 92.81, "acm": 91.15, "imdb": 57.13, "amazon": 68.26, "yelp": 64.73},
    "gtn": {"amazon": 71.82, "yelp": 66.27},
    "gtn-published": {"dblp": 93.98, "acm": 91.89, "imdb": 59.68},
    "hgt": {"dblp": 93.67, "acm": 91.83, "imdb": 59.35, "amazon": 74.75, "yelp": 68.07},
    "gems": {"amazon": 70.66, "yelp": 65.12},
    "diffmg": {"dblp": 94.45, "acm": 92.65, "imdb": 61.04, "amazon": 75.28, "yelp": 68.77},
    "recipe": {"amazon": 77.72, "yelp": 70.38},
    "tensus-either": {"dblp": 95.92, "acm": 94.02, "imdb": 64.16, "amazon": 77.72, "yelp": 70.38},
}
