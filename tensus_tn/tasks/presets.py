"""Settings in the place of the defaults: ours for pairs, DiffMG's, and those of the planted graph."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

Phase = Literal["search", "train"]

#: For pairs, where the defaults are for the classes of nodes: `Config(data="amazon", **PAIRS)`.
PAIRS: Mapping[str, Any] = MappingProxyType({
    "normalisation": "diffmg", "divide": False, "topology": "complete", "affine": True,
    "norm": "affine", "activation": "gelu", "inputs": "features,id,degree,spectral",
    "bias": True, "dropout": 0.6, "lr": 0.01, "core_lr": 0.01, "select": "metric", "patience": 20,
    "epochs": 250,
})  # fmt: skip
#: DiffMG's network and its training; the rank is left as it is set.
_DIFFMG: dict[str, Any] = {
    "even": False, "normalisation": "diffmg", "divide": False, "topology": "complete", "steps": 4,
    "hidden": 64, "affine": True, "head": "linear", "dropout": 0.0, "norm": "affine",
    "activation": "gelu", "epochs": 50, "patience": 10, "lr": 0.005, "weight_decay": 0.001,
    "core_lr": 0.01,
}  # fmt: skip
_LINKS = {"select": "metric", "patience": 0, "epochs": 200}
_TRAIN: dict[str, dict[str, Any]] = {
    "planted": {
        "normalisation": "row", "topology": "path", "steps": 2, "hidden": 16, "epochs": 150,
        "patience": 0, "lr": 0.02, "core_lr": 0.1,
    },
    "dblp": {"lr": 0.005, "weight_decay": 0.001, "state_dropout": 0.3},
    "acm": {"lr": 0.01, "weight_decay": 0.005, "state_dropout": 0.4, "norm": "none",
            "input_activation": "tanh"},
    "imdb": {"lr": 0.01, "weight_decay": 0.01, "state_dropout": 0.7},
    "amazon": {**_LINKS, "lr": 0.01, "weight_decay": 0.001, "state_dropout": 0.6},
    "yelp": {**_LINKS, "lr": 0.01, "weight_decay": 0.0005, "state_dropout": 0.6},
    "douban": {**_LINKS, "lr": 0.01, "weight_decay": 0.0003, "state_dropout": 0.2},
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
#: Settings of the network, the same in both phases.
SHAPE = (
    "even", "normalisation", "divide", "topology", "steps", "hidden", "affine", "head", "activation",
)  # fmt: skip
_SAMPLED = {
    "search": "sampled", "updates": "alternating", "rank": 1, "init_scale": 0.001, "core_lr": 3e-4,
    "weight_decay": 0.001, "state_dropout": 0.0, "norm": "plain", "input_activation": "none",
    "select": "last", "patience": 0,
}  # fmt: skip


def preset(data: str, phase: Phase = "train") -> dict[str, Any]:
    """DiffMG's settings, with those that it published for a data set, by its name.

    `"search"`: its search: one relation per link, rank 1, cores and weights in turns. `"train"`: how
    it trains what was found. The planted graph has settings of ours.

    Example:
        >>> settings = preset("imdb")
        >>> settings["head"], settings["state_dropout"]
        ('linear', 0.7)
        >>> preset("imdb", "search")["epsilon"]
        0.3
    """
    train = {**_DIFFMG, **_TRAIN.get(data, {})}
    return train if phase == "train" else {**train, **_SAMPLED, **_SEARCH.get(data, {})}
