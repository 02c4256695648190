"""Presets are settings, those of the protocol."""

import pytest

from tensus_tn.tasks import Config, preset
from tensus_tn.tasks.presets import _SEARCH, _TRAIN


@pytest.mark.parametrize("data", [*_TRAIN, "unknown"])
def test_presets_are_settings(data):
    Config().with_values(preset(data))
    search = Config().with_values(preset(data, "search"))
    assert search.search == "sampled"
    assert search.select == "last"
    assert search.updates == "alternating"


def test_presets_are_those_of_the_protocol():
    assert (preset("acm")["norm"], preset("acm")["input_activation"]) == ("none", "tanh")
    assert preset("yelp")["weight_decay"] == 0.0005
    assert preset("yelp")["select"] == "metric"
    assert preset("amazon", "search")["epsilon"] == 0.5
    assert preset("amazon", "search")["core_lr"] == 3e-4
    assert set(_SEARCH) == set(_TRAIN)
