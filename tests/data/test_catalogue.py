"""The known data sets: where they come from, and that they are what they should be."""

import pytest

from tensus_tn.data import catalogue, load
from tests.data.reading import real


def test_missing_files_say_where_to_get_them_and_where_to_put_them(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSUS_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"HIN-Datasets.*TENSUS_DATA") as error:
        load("yelp")
    assert str(tmp_path / "rec_yelp.npz") in str(error.value)
    with pytest.raises(FileNotFoundError, match=r"no such\.npz; known data sets: dblp, acm"):
        load("no such.npz")
    for name in ("ACM", "Planted", "data/acm"):
        with pytest.raises(FileNotFoundError, match=rf"no {name};.*douban, planted; did you mean"):
            load(name)


def test_the_real_files_have_the_counts_of_the_paper():
    expected = {
        "gtn_dblp.npz": (18405, 67946, {"train": 800, "val": 400, "test": 2857}),
        "gtn_acm.npz": (8994, 25922, {"train": 600, "val": 300, "test": 2125}),
        "gtn_imdb.npz": (12772, 37288, {"train": 300, "val": 300, "test": 2339}),
    }
    for file, (nodes, edges, splits) in expected.items():
        data = load(real(file))
        assert data.num_nodes == nodes
        assert sum(r.edges.shape[1] for r in data.relations.values()) == edges
        assert {s: len(n) for s, n in data.target.nodes.items()} == splits
        assert data.node_counts == catalogue.KNOWN[data.name].node_counts
        known = catalogue.KNOWN[data.name].relations
        assert data.metadata == {name: ends[::-1] for name, ends in known.items()}
