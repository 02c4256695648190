"""Networks by settings."""

import pytest
import torch

from tensus_tn.tasks import (
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
    changes = {"norm": "none", "input_activation": "tanh", "dropout": 0.25, "hidden": 4}
    settings = {**changes, "topology": "complete", "steps": 3, "rank": 3, "ties": "global"}
    net = build_model(SMALL.with_values({**settings, "init_scale": 0.0}), task.spec)
    (conv,) = net.layers
    assert not any(core.any() for core in net.arch_parameters())
    assert conv.norm is None
    assert net.input_activation is torch.tanh
    assert (conv.dropout, conv.out_channels) == (0.25, 4)
    assert len(conv.tensor.dag.edges) == 6
    assert conv.tensor.structure.ranks == (3,)
    plain, affine = (
        build_model(SMALL.with_values({"norm": norm}), task.spec).layers[0].norm
        for norm in ("plain", "affine")
    )
    assert len(list(plain.parameters())) == 0
    assert len(list(affine.parameters())) == 2
