"""Presets are settings, those of the protocol."""

import pytest

from tensus_tn.data import planted
from tensus_tn.nn import DIFFMG, MetaGraphNet
from tensus_tn.tasks import Config, build_model, make_task, preset
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


def test_the_network_of_the_preset_is_that_of_diffmg():
    spec = make_task(planted(num_nodes=20)).spec
    settings = {**preset("imdb"), "rank": 1, "hidden": 8}
    built = build_model(Config().with_values(settings), spec)
    given = spec["in_channels"], 8, spec["num_classes"], spec["metadata"], "t"
    wanted = MetaGraphNet(*given, **DIFFMG, state_dropout=0.7)
    assert repr(built) == repr(wanted)
    for one, other in zip(built.modules(), wanted.modules(), strict=True):
        for name in ("dropout", "activation", "divide", "input_activation"):
            assert getattr(one, name, None) == getattr(other, name, None)
