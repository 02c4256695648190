"""The loader of the Heterogeneous Graph Benchmark's files: small ones made here, whole and damaged."""

import json
import re

import numpy as np
import pytest
import torch

from tensus_tn.data import NodeLabels, load, load_hgb, planted, write_predictions
from tensus_tn.data.hgb import ROWS_AT_A_TIME
from tests.data.hgb_files import AUTHORS, INFO, PAPERS, VENUES, write_hgb


@pytest.fixture
def folder(tmp_path):
    return write_hgb(tmp_path / "ACM")


def edit(folder, file, change):
    """Replace the lines of a file by what `change` makes of them."""
    path = folder / file
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(change(lines)) + "\n", encoding="utf-8")


def same(one, other):
    """Whether two data sets have the same graph, features and labels."""
    assert repr(one) == repr(other)
    for name, relation in one.relations.items():
        assert relation[:2] == other.relations[name][:2]
        assert torch.equal(*(r.edges.unique(dim=1) for r in (relation, other.relations[name])))
    for kind, x in one.features.items():
        assert torch.equal(x.to_dense(), other.features[kind].to_dense())
    assert torch.equal(one.target.labels, other.target.labels)
    for split, nodes in one.target.nodes.items():
        assert torch.equal(nodes.sort().values, other.target.nodes[split].sort().values)
    return True


def test_it_reads_what_the_files_say(folder):
    data = load(folder)
    assert data.name == "ACM"
    assert data.node_counts == {"paper": PAPERS, "author": AUTHORS, "venue": VENUES}
    expected = np.random.default_rng(0).integers(0, 2, (PAPERS, 5)) * 0.5
    assert torch.equal(data.features["paper"], torch.from_numpy(expected).float())
    authors = torch.tensor([[float(i), -1e-3] for i in range(AUTHORS)])
    assert torch.equal(data.features["author"].to_dense(), authors)
    assert "venue" not in data.features
    assert data.inputs()["venue"].to_dense().tolist() == torch.eye(VENUES).tolist()
    wrote = data.relations["paper-author"]
    assert (wrote.source, wrote.destination) == ("paper", "author")
    assert wrote.edges[:, 3].tolist() == [3, PAPERS + 3]
    labels = data.target.labels
    assert labels[:PAPERS].tolist() == [i % 3 for i in range(PAPERS)]
    assert (labels[PAPERS:] == -1).all()
    assert not data.target.multi_label
    assert data.target.known("test")
    assert data.target.doubtful


def test_a_relation_gets_its_reverse_unless_another_one_is_that(folder):
    relations = load_hgb(folder).relations
    assert list(relations) == [
        "paper-author",
        "author-paper",
        "paper-venue",
        "paper-venue reversed",
        "paper-cite-paper",
        "paper-cite-paper reversed",
    ]
    back = relations["paper-venue reversed"]
    assert (back.source, back.destination) == ("venue", "paper")
    assert torch.equal(back.edges, relations["paper-venue"].edges.flip(0))


def test_a_symmetric_relation_has_no_reverse(folder):
    both = [f"{i}\t{j}\t3\t1.0" for a in range(5) for i, j in ((a, a + 1), (a + 1, a))]
    edit(folder, "link.dat", lambda lines: [x for x in lines if x.split("\t")[2] != "3"] + both)
    names = list(load_hgb(folder).relations)
    assert names[-1] == "paper-cite-paper"


def test_one_link_too_few_makes_another_relation_of_the_reverse(folder):
    edit(folder, "link.dat", lambda lines: [x for x in lines if x != "20\t0\t1\t1.0"])
    assert "paper-author reversed" in load_hgb(folder).relations


def test_validation_nodes_are_a_fifth_of_the_training_labels_by_seed(folder):
    one, again, other = (load_hgb(folder, seed=seed).target.nodes for seed in (0, 0, 1))
    assert [len(one[split]) for split in ("train", "val", "test")] == [8, 2, 10]
    assert sorted([*one["train"].tolist(), *one["val"].tolist()]) == list(range(10))
    assert one["test"].tolist() == list(range(10, PAPERS))
    assert torch.equal(one["val"], again["val"])
    assert not torch.equal(one["val"], other["val"])
    assert len(load_hgb(folder, val_share=0.5).target.nodes["val"]) == 5


def test_the_order_of_lines_does_not_matter(folder, tmp_path):
    random = np.random.default_rng(1)
    shuffled = write_hgb(tmp_path / "other")
    for file in ("node.dat", "link.dat"):
        edit(shuffled, file, lambda lines: random.permutation(lines).tolist())
    assert same(load_hgb(folder), load_hgb(shuffled, name="ACM"))


@pytest.mark.parametrize("change", ["CRLF", "no end of line", "empty lines"])
def test_ends_of_lines_do_not_matter(folder, tmp_path, change):
    other = write_hgb(tmp_path / "other")
    for file in ("node.dat", "link.dat", "label.dat", "label.dat.test"):
        text = (other / file).read_bytes()
        text = {
            "CRLF": text.replace(b"\n", b"\r\n"),
            "no end of line": text.rstrip(b"\n"),
            "empty lines": text + b"\n\n",
        }[change]
        (other / file).write_bytes(text)
    assert same(load_hgb(folder), load_hgb(other, name="ACM"))


@pytest.mark.parametrize("info", [None, "TYPE\tMEANING\n0\t\tBOOK\n", "{", "[]", '{"node.dat": 1}'])
def test_without_a_table_of_names_types_have_numbers(folder, info):
    (folder / "info.dat").unlink()
    if info is not None:
        (folder / "info.dat").write_text(info)
    data = load_hgb(folder)
    assert list(data.node_counts) == ["0", "1", "2"]
    assert list(data.relations)[:3] == ["0-1", "1-0", "0-2"]


def test_relations_between_the_same_types_have_different_names(folder):
    (folder / "info.dat").unlink()
    edit(folder, "link.dat", lambda lines: [*lines, "0\t20\t7\t1.0"])
    assert {"0-1", "0-1 7", "0-1 7 reversed"} <= set(load_hgb(folder).relations)


def test_classes_that_no_label_has_are_known_from_the_table_of_names(folder):
    for file in ("label.dat", "label.dat.test"):
        edit(folder, file, lambda lines: [x[:-1] + "0" for x in lines])
    assert load_hgb(folder).target.num_classes == 3


def test_several_classes_for_a_node(tmp_path):
    data = load_hgb(write_hgb(tmp_path / "IMDB", several=True))
    assert isinstance(data.target, NodeLabels)
    assert data.target.multi_label
    assert data.target.labels[:4].tolist() == [[1, 0, 0], [0, 1, 1], [0, 0, 1], [1, 1, 1]]
    assert (data.target.labels[PAPERS:] == -1).all()


def test_test_labels_come_from_the_file_that_has_the_true_ones(folder):
    true = [x[:-1] + "2" for x in (folder / "label.dat.test").read_text().splitlines()]
    (folder / "label.dat.test_full").write_text("\n".join(true) + "\n")
    data = load_hgb(folder)
    assert (data.target.labels[data.target.nodes["test"]] == 2).all()
    assert not data.target.doubtful
    (folder / "label.dat.test_full").write_text("\n".join(true[1:]) + "\n")
    with pytest.raises(ValueError, match="lacks node 10"):
        load_hgb(folder)


@pytest.mark.parametrize("cut", [1, 2])
def test_test_labels_may_be_unknown(folder, cut):
    edit(
        folder,
        "label.dat.test",
        lambda lines: [x.rsplit("\t", 1)[0] + "\t" * (cut - 1) for x in lines],
    )
    target = load_hgb(folder).target
    assert target.known("val")
    assert not target.known("test")
    assert "unknown" in repr(target)


def test_types_without_features_may_be_all_alike(folder):
    data = load_hgb(folder, missing="none")
    assert data.features["venue"].tolist() == [[1.0]] * VENUES


def test_many_nodes_without_features_take_little_memory(folder):
    many = 200_000
    edit(
        folder, "node.dat", lambda lines: lines[:-VENUES] + [f"{26 + i}\t\t2" for i in range(many)]
    )
    x = load_hgb(folder).inputs()["venue"]
    assert x.shape == (many, many)
    assert x.is_sparse
    assert x.values().numel() == many


def test_many_rows_of_features_are_read_in_parts_and_kept_sparse(folder):
    num, size = 2 * ROWS_AT_A_TIME + 3, 40
    row = [["0"] * size for _ in range(num)]
    for i in range(num):
        row[i][i % size] = str(i)
    lines = [f"{26 + i}\t\t2\t{','.join(row[i])}" for i in range(num)]
    edit(folder, "node.dat", lambda old: old[:-VENUES] + lines)
    x = load_hgb(folder).features["venue"]
    expected = torch.zeros(num, size)
    expected[torch.arange(num), torch.arange(num) % size] = torch.arange(num).float()
    assert x.is_sparse
    assert torch.equal(x.to_dense(), expected)


DAMAGES = {
    "no nodes": ("node.dat", lambda x: [], "no nodes"),
    "a node twice": ("node.dat", lambda x: [*x, x[0]], "each once; expected 1, got 0"),
    "a node is missing": ("node.dat", lambda x: x[1:], "each once; expected 0, got 1"),
    "types not in order": ("node.dat", lambda x: ["0\t\t1\t1,1", *x[1:]], "consecutive ids"),
    "an id that is none": ("node.dat", lambda x: ["p0\t\t0\t1", *x[1:]], "line 1: .*as the id"),
    "a negative id": ("node.dat", lambda x: ["-1\t\t0\t1", *x[1:]], "line 1: .*as the id"),
    "a type that is none": ("node.dat", lambda x: ["0\t\tpaper\t1", *x[1:]], "as the type"),
    "a type of many digits": ("node.dat", lambda x: ["0\t\t" + "9" * 5000, *x[1:]], "as the type"),
    "a type far beyond": ("node.dat", lambda x: [*x, f"28\t\t{10**9}"], "types must be 0, 1, 2"),
    "a tab in a name": ("node.dat", lambda x: ["0\ta\tb\t0\t1", *x[1:]], "got 5 fields"),
    "spaces for tabs": ("node.dat", lambda x: [x[0].replace("\t", " "), *x[1:]], "got 1 fields"),
    "a feature too few": ("node.dat", lambda x: ["0\t\t0\t1,2", *x[1:]], "features of type 0"),
    "a feature that is none": ("node.dat", lambda x: ["0\t\t0\t1,a,3,4,5", *x[1:]], "type 0"),
    "an empty feature": ("node.dat", lambda x: ["0\t\t0\t1,,3,4,5", *x[1:]], "type 0"),
    "NaN": ("node.dat", lambda x: ["0\t\t0\t1,nan,3,4,5", *x[1:]], "NaN or infinity"),
    "a node without features": ("node.dat", lambda x: ["0\t\t0", *x[1:]], "some nodes have none"),
    "no links": ("link.dat", lambda x: [], "no relations"),
    "a link to nowhere": ("link.dat", lambda x: [*x, "0\t99\t0\t1.0"], "0 to 27, got 0 to 99"),
    "a link from nowhere": ("link.dat", lambda x: [*x, "-1\t20\t0\t1.0"], "0 to 27, got -1"),
    "two types at an end": ("link.dat", lambda x: [*x, "0\t27\t0\t1.0"], "relation 0.*one type"),
    "half a link": ("link.dat", lambda x: [*x, "0\t20"], "source, target, relation"),
    "a link of words": ("link.dat", lambda x: [*x, "0\t20\tAP\t1.0"], "source, target, relation"),
    "a fraction of a node": ("link.dat", lambda x: [*x, "0.5\t20\t0\t1"], "source, target"),
    "a negative relation": ("link.dat", lambda x: [*x, "0\t20\t-1\t1"], "relations 0, 1, ..., got -1"),
    "no labels": ("label.dat", lambda x: [], "label.dat has no labels"),
    "no test labels": ("label.dat.test", lambda x: [], "label.dat.test has no labels"),
    "an empty label": ("label.dat", lambda x: ["0\t\t0\t", *x[1:]], "node 0 has no label"),
    "a label that is none": ("label.dat", lambda x: ["0\t\t0\tdb", *x[1:]], "as the label"),
    "a label twice": ("label.dat", lambda x: [*x, x[0]], "line 11: node 0 is there twice"),
    "a comma too many": ("label.dat", lambda x: ["0\t\t0\t1,", *x[1:]], "as the label"),
    "a label of no node": ("label.dat", lambda x: ["28\t\t0\t1", *x[1:]], "node 28, but there are 28"),
    "a label of another type": ("label.dat", lambda x: ["20\t\t1\t1", *x[1:]], "of one type"),
    "a label with a false type": ("label.dat", lambda x: ["0\t\t1\t1", *x[1:]], "0 is not of type 1"),
    "a class beyond all": ("label.dat", lambda x: [f"0\t\t0\t{10**12}", *x[1:]], "only 20 labels"),
    "and one of several": ("label.dat", lambda x: [f"0\t\t0\t1,{10**12}", *x[1:]], "only 21 labels"),
    "trained and tested": ("label.dat.test", lambda x: [*x, "0\t\t0\t1"], "node 0 is in label.dat and"),
    "one label to draw from": ("label.dat", lambda x: x[:1], "train split is empty"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_refused(folder, damage):
    file, change, message = DAMAGES[damage]
    edit(folder, file, change)
    if damage == "no links":
        (folder / file).write_text("")
    with pytest.raises(ValueError, match=message):
        load_hgb(folder)


@pytest.mark.parametrize("file", ["node.dat", "link.dat", "label.dat", "label.dat.test"])
def test_a_missing_file_is_named(folder, file):
    (folder / file).unlink()
    with pytest.raises(FileNotFoundError, match=re.escape(str(folder / file))):
        load_hgb(folder)


def test_other_than_utf8_is_refused(folder):
    (folder / "node.dat").write_bytes("0\tGödel\t0\t1\n".encode("latin-1"))
    with pytest.raises(ValueError, match="not UTF-8"):
        load_hgb(folder)


def test_names_that_mean_two_types_are_refused(folder):
    (folder / "info.dat").write_text(json.dumps(INFO).replace('"venue"}', '"paper"}'))
    with pytest.raises(ValueError, match="two node types have the same name"):
        load_hgb(folder)


@pytest.mark.parametrize("options", [{"val_share": 0.0}, {"val_share": 1.0}, {"missing": "zero"}])
def test_wrong_options_are_refused(folder, options):
    with pytest.raises(ValueError, match=next(iter(options))):
        load_hgb(folder, **options)


@pytest.mark.parametrize("several", [False, True])
def test_predictions_are_written_as_labels_are_read(tmp_path, several):
    folder = write_hgb(tmp_path / "ACM", several=several)
    data = load_hgb(folder)
    truth = data.target.labels[data.target.nodes["test"]]
    predicted = 1 - truth if several else 2 - truth
    write_predictions(tmp_path / "ACM.txt", data, predicted)
    line = (tmp_path / "ACM.txt").read_text().splitlines()[1]
    assert line == ("11\t\t0\t" if several else "11\t\t0\t0")
    (folder / "label.dat.test").write_text((tmp_path / "ACM.txt").read_text())
    again = load_hgb(folder, seed=0).target
    if not several:  # where several classes are possible, none of them can't be told from unknown
        assert torch.equal(again.labels[again.nodes["test"]], predicted)


def test_predictions_must_fit_the_test_nodes(tmp_path):
    with pytest.raises(ValueError, match=re.escape("shape (13,), got (12,)")):
        write_predictions(tmp_path / "x", planted(num_nodes=50), torch.zeros(12))
