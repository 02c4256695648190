"""Networks by settings."""

import pytest
import torch

from tensus_tn.nn import MetaGraphNet
from tensus_tn.tasks import (
    Config,
    best_meta_graphs,
    build_model,
    make_task,
)
from tests.tasks.problems import SMALL, small_links


def test_meta_graphs_for_the_wrong_number_of_networks_are_refused(task):
    pairs = make_task(small_links())
    chosen = best_meta_graphs(build_model(SMALL, task.spec), 1)
    with pytest.raises(ValueError, match="meta-graphs of 1 networks, but 2 are to be trained"):
        build_model(SMALL, pairs.spec, chosen)


def test_the_network_is_that_of_the_settings(task):
    changes = {"norm": "none", "input_activation": "tanh", "state_dropout": 0.25, "hidden": 4}
    settings = {**changes, "topology": "complete", "steps": 3, "rank": 3, "ties": "global"}
    net = build_model(SMALL.with_values({**settings, "init_scale": 0.0}), task.spec)
    (conv,) = net.layers
    assert not any(core.any() for core in net.arch_parameters())
    assert conv.norm is None
    assert net.input_activation is torch.tanh
    assert (net.dropout, conv.dropout, conv.out_channels) == (0.3, 0.25, 4)
    assert len(conv.tensor.dag.edges) == 6
    assert conv.tensor.structure.ranks == (3,)
    plain, affine = (
        build_model(SMALL.with_values({"norm": norm}), task.spec).layers[0].norm
        for norm in ("plain", "affine")
    )
    assert len(list(plain.parameters())) == 0
    assert len(list(affine.parameters())) == 2


def test_the_defaults_are_those_of_the_network(task):
    built = build_model(Config(hidden=8), task.spec)
    (conv,) = built.layers
    spec = task.spec
    plain = MetaGraphNet(spec["in_channels"], 8, spec["num_classes"], spec["metadata"], "t")
    assert (built.dropout, conv.dropout) == (plain.dropout, plain.layers[0].dropout)
    assert [p.shape for p in built.parameters()] == [p.shape for p in plain.parameters()]
    assert (conv.activation, conv.divide) == (plain.layers[0].activation, plain.layers[0].divide)
