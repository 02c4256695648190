"""DiffMG's published settings for the data sets of the paper, and ours for the planted graph."""

from __future__ import annotations

from typing import Any, Literal

Phase = Literal["search", "train"]

_LINKS = {"select": "metric", "patience": 0, "epochs": 200}
_TRAIN: dict[str, dict[str, Any]] = {
    "planted": {
        "normalisation": "row", "topology": "path", "steps": 2, "hidden": 16, "epochs": 150,
        "patience": 0, "lr": 0.02, "core_lr": 0.1,
    },
    "dblp": {"lr": 0.005, "weight_decay": 0.001, "dropout": 0.3},
    "acm": {"lr": 0.01, "weight_decay": 0.005, "dropout": 0.4, "norm": "none",
            "input_activation": "tanh"},
    "imdb": {"lr": 0.01, "weight_decay": 0.01, "dropout": 0.7},
    "amazon": {**_LINKS, "lr": 0.01, "weight_decay": 0.001, "dropout": 0.6},
    "yelp": {**_LINKS, "lr": 0.01, "weight_decay": 0.0005, "dropout": 0.6},
    "douban": {**_LINKS, "lr": 0.01, "weight_decay": 0.0003, "dropout": 0.2},
}  # fmt: skip
_SEARCH: dict[str, dict[str, Any]] = {
    "planted": {  # layer norm would hide how much a single path weighs
        "epochs": 100, "lr": 0.02, "epsilon": 1.0, "epsilon_decay": 0.98, "core_lr": 0.05,
        "norm": "none",
    },
    "dblp": {"epochs": 50, "lr": 0.005, "epsilon": 0.0},
    "acm": {"epochs": 50, "lr": 0.005, "epsilon": 0.3},
    "imdb": {"epochs": 50, "lr": 0.005, "epsilon": 0.3},
    "amazon": {"epochs": 100, "lr": 0.01, "epsilon": 0.5},
    "yelp": {"epochs": 100, "lr": 0.005, "epsilon": 0.0},
    "douban": {"epochs": 100, "lr": 0.005, "epsilon": 0.0},
}  # fmt: skip
SHAPE = ("normalisation", "topology", "steps", "hidden")  # of the network, the same in both phases
_SAMPLED = {
    "search": "sampled", "updates": "alternating", "rank": 1, "init_scale": 0.001, "core_lr": 3e-4,
    "weight_decay": 0.001, "dropout": 0.0, "norm": "plain", "input_activation": "none",
    "select": "last", "patience": 0,
}  # fmt: skip


def preset(data: str, phase: Phase = "train") -> dict[str, Any]:
    """What differs from the defaults of `Config` for a data set, by its name.

    `"search"`: DiffMG's search, with any data set: one relation a link, rank 1, cores and weights
    in turns.

    Example:
        >>> preset("imdb")
        {'lr': 0.01, 'weight_decay': 0.01, 'dropout': 0.7}
        >>> preset("imdb", "search")["epsilon"]
        0.3
    """
    if phase == "train":
        return dict(_TRAIN.get(data, {}))
    shape = {key: _TRAIN.get(data, {})[key] for key in SHAPE if key in _TRAIN.get(data, {})}
    return {**shape, **_SAMPLED, **_SEARCH.get(data, {})}
