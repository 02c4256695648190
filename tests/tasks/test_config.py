"""Settings: checked, from a file, from flags."""

import argparse
from dataclasses import fields

import pytest

from tensus_tn.tasks import Config
from tensus_tn.tasks.config import add_arguments, from_arguments, read_toml


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"rank": 0}, ValueError, "rank must be positive"),
        ({"rank": 1.5}, TypeError, "rank must be of type int, got 1.5"),
        ({"dropout": 1.5}, ValueError, "dropout must be between 0 and 1"),
        ({"lr": "fast"}, TypeError, "lr must be a number"),
        ({"lr": float("nan")}, ValueError, "lr must not be negative, got nan"),
        ({"select": "test"}, ValueError, "select must be one of"),
        (
            {"inputs": "id,degrees"},
            ValueError,
            "inputs must be some of features,id,degree,spectral",
        ),
        ({"progress": 1}, TypeError, "progress must be of type bool"),
        ({"epoch": 3}, ValueError, "did you mean 'epochs'"),
    ],
)
def test_bad_settings_are_refused(values, error, message):
    with pytest.raises(error, match=message):
        Config().with_values(values)


def test_toml(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text('data = "dblp"\nlr = 1\nprogress = false\n')
    config = Config().with_values(read_toml(path))
    assert (config.data, config.lr, config.progress, config.rank) == ("dblp", 1, False, 2)
    path.write_text("data = dblp")
    with pytest.raises(ValueError, match=r"config\.toml"):
        read_toml(path)


def test_every_setting_has_a_flag_and_its_default_is_in_the_help():
    parser = argparse.ArgumentParser(formatter_class=argparse.HelpFormatter)
    defaults = Config(lr=0.125)
    add_arguments(parser, defaults)
    text = " ".join(parser.format_help().split())
    for field in fields(Config):
        assert f"--{field.name.replace('_', '-')}" in text
        value = getattr(defaults, field.name)
        assert f"(default: {'none' if value == '' else value})" in text
    assert from_arguments(parser.parse_args([])) == defaults
    flags = ["--rank", "3", "--no-progress", "--select", "metric", "--dropout", "0.5"]
    config = from_arguments(parser.parse_args(flags))
    assert (config.rank, config.progress, config.select, config.dropout) == (
        3,
        False,
        "metric",
        0.5,
    )
    assert config.lr == 0.125


def test_fan_outs_are_numbers_for_every_step():
    assert Config(steps=3).hops() == [-1, -1, -1]
    assert Config(steps=3, batch_size=8, fan_out="4").hops() == [4, 4, 4]
    assert Config(steps=2, batch_size=8, fan_out="-1,5").hops() == [-1, 5]
    for wrong, message in (
        ({"fan_out": "4"}, "give a batch_size"),
        ({"batch_size": 8, "fan_out": "4,4"}, "for each of 4 steps, got '4,4'"),
        ({"batch_size": 8, "fan_out": "-2"}, "-1: all"),
        ({"batch_size": 8, "fan_out": "few"}, "must be numbers, as 10,5, got 'few'"),
        ({"batch_size": -1}, "batch_size must not be negative"),
    ):
        with pytest.raises(ValueError, match=message):
            Config(**wrong)
