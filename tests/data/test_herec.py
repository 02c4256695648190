"""The .dat files of HERec, and damaged ones."""

import numpy as np
import pytest

from tensus_tn.data import load, load_herec
from tensus_tn.data.herec import _sorted_ratings
from tests.data.originals import (
    write_herec,
)
from tests.data.reading import pairs_of, ratings, real


def test_herec_files(tmp_path):
    table = ratings()
    data = load(write_herec(tmp_path / "mine", table), ratings="user_item", seeds=(3, 4))
    users, items = (int(n) for n in table[:, :2].max(axis=0))
    assert data.node_counts == {"user": users, "item": items, "brand": 1}
    assert list(data.relations) == [
        "user_user", "user_item", "user_item reversed", "item_brand", "item_brand reversed",
    ]  # fmt: skip
    assert sorted(pairs_of(data, "user_user")) == [[0, 1], [0, 2], [1, 0], [2, 0]]
    assert data.symmetric == {"user_user"}
    shift = np.array([1, 1 - users])
    liked = {tuple(row[:2]) for row in table[:60].tolist() if row[2] > 3}
    low = {tuple(row[:2]) for row in table[:60].tolist() if row[2] <= 3}
    positive = [
        tuple(p) for s in data.target.positive.values() for p in (s.numpy() + shift).tolist()
    ]
    negative = [
        tuple(p) for s in data.target.negative.values() for p in (s.numpy() + shift).tolist()
    ]
    edges = {tuple(p) for p in (np.array(pairs_of(data, "user_item")) + shift).tolist()}
    assert edges | set(positive) == liked  # half of them are edges, and those are not asked for
    assert not edges & set(positive)
    assert abs(len(edges) - len(positive)) <= 1
    assert set(negative) <= low
    assert len(set(negative)) == len(negative) == len(positive)


def test_ratings_are_in_the_order_of_the_file_or_of_their_ids():
    table = np.array([[2, 1, 5], [1, 3, 4], [1, 2, 3], [1, 3, 1]])
    pairs, rating = _sorted_ratings(table, by_id=False)
    assert (pairs.tolist(), rating.tolist()) == ([[1, 0], [0, 2], [0, 1]], [5, 4, 3])
    pairs, rating = _sorted_ratings(table, by_id=True)
    assert (pairs.tolist(), rating.tolist()) == ([[0, 1], [0, 2], [1, 0]], [3, 4, 5])


def test_bad_herec_files_are_refused(tmp_path):
    folder = write_herec(tmp_path, ratings())
    with pytest.raises(ValueError, match="ratings must be one of"):
        load_herec(folder)
    (folder / "item_brand.dat").write_text("0\t1\n")
    with pytest.raises(ValueError, match="count from 1"):
        load_herec(folder, ratings="user_item")
    (folder / "item_brand.dat").write_text("a\tb\n")
    with pytest.raises(ValueError, match="expected lines of numbers"):
        load_herec(folder, ratings="user_item")
    (folder / "item_brand.dat").write_text("1\n")
    with pytest.raises(ValueError, match="two ids"):
        load_herec(folder, ratings="user_item")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1.5\t1", r"item_brand\.dat: ids: expected whole numbers .* got 1\.5"),
        ("1\tnan", "ids: expected whole numbers .* got nan"),
        ("inf\t1", "ids: expected whole numbers .* got inf"),
        ("9999999999\t1", "at most 2147483647, got 9999999999"),
    ],
)
def test_ids_that_number_no_node_are_refused(tmp_path, line, message):
    folder = write_herec(tmp_path, ratings())
    (folder / "item_brand.dat").write_text(f"1\t1\n{line}\n")
    with pytest.raises(ValueError, match=message):
        load_herec(folder, ratings="user_item")


def test_ratings_may_have_fractions(tmp_path):
    folder, table = write_herec(tmp_path, ratings()), ratings()
    whole = load_herec(folder, ratings="user_item")
    halves = table + np.array([0, 0, -0.5])  # 3.5 is positive, as 4 was
    np.savetxt(folder / "user_item.dat", halves, fmt="%g", delimiter="\t")
    half = load_herec(folder, ratings="user_item")
    for split, pairs in whole.target.positive.items():
        assert (pairs == half.target.positive[split]).all()
        assert (whole.target.negative[split] == half.target.negative[split]).all()
    halves[0, 2] = np.nan
    np.savetxt(folder / "user_item.dat", halves, fmt="%g", delimiter="\t")
    with pytest.raises(ValueError, match="NaN among its ratings"):
        load_herec(folder, ratings="user_item")


def test_herec_reproduces_diffmgs_positive_pairs(tmp_path):
    """Amazon's ratings written as HERec has them give the split that DiffMG stored."""
    file = real("rec_amazon.npz")
    with np.load(file) as arrays:
        for name, first, second in (
            ("UI", "user", "item"), ("IB", "item", "brand"),
            ("IC", "item", "category"), ("IV", "item", "view"),
        ):  # fmt: skip
            third = arrays["rating_UI"] if name == "UI" else np.ones(len(arrays[f"rel_{name}_src"]))
            table = np.stack(
                [arrays[f"rel_{name}_src"] + 1, arrays[f"rel_{name}_dst"] + 1, third], 1
            )
            np.savetxt(tmp_path / f"{first}_{second}.dat", table, fmt="%d", delimiter="\t")
    stored, split = load(file), load_herec(tmp_path, name="Amazon")
    assert split.node_counts == stored.node_counts
    assert split.metadata == stored.metadata
    for name, relation in stored.relations.items():
        assert (relation.edges == split.relations[name].edges).all()
    for part, pairs in stored.target.positive.items():
        assert (pairs == split.target.positive[part]).all()
        assert split.target.negative[part].shape == pairs.shape
