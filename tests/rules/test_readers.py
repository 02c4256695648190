"""Triples from files, and from the objects of PyG and pykeen."""

import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tensus_tn.rules import KnowledgeGraph

TRAIN, VALID, TEST = [("a", "r", "b"), ("b", "s", "c")], [("a", "s", "c")], [("c", "r", "a")]
DATA = Path(os.environ.get("TENSUS_DATA", "data"))
IDS = torch.tensor([[0, 0, 1], [1, 1, 2], [0, 1, 2], [2, 0, 0]])


def write(file, triples):
    file.write_text("".join("\t".join(triple) + "\n" for triple in triples))


@pytest.fixture
def folder(tmp_path):
    for name, triples in (("train", TRAIN), ("valid", VALID), ("test", TEST)):
        write(tmp_path / f"{name}.txt", triples)
    return tmp_path


def ids(graph):
    return [graph.train.tolist(), graph.valid.tolist(), graph.test.tolist()]


WANTED = [[[0, 0, 1], [1, 1, 2]], [[0, 1, 2]], [[2, 0, 0]]]


def test_a_folder(folder):
    graph = KnowledgeGraph.load(folder)
    assert ids(graph) == WANTED
    assert graph.entities == ("a", "b", "c")


def test_a_split_that_stands_in_two_files(folder):
    (folder / "valid.tsv").write_text("a\tr\tb\n")
    with pytest.raises(ValueError, match=r"has both valid\.tsv and valid\.txt"):
        KnowledgeGraph.load(folder)


def test_a_folder_with_facts(folder):
    write(folder / "facts.txt", [("c", "s", "b")])
    graph = KnowledgeGraph.load(folder)
    assert [graph.entities[k] for k in graph.train[0, [0, 2]]] == ["c", "b"]
    assert len(graph.train) == 3


def test_a_single_file(folder):
    graph = KnowledgeGraph.load(folder / "train.txt")
    assert len(graph.train) == 2
    assert len(graph.test) == 0


def test_damaged_files(folder):
    (folder / "valid.txt").write_text("a\tr\tb\n\na r b\n")
    with pytest.raises(ValueError, match=r"valid.txt, line 3: .* got 1 columns: 'a r b'"):
        KnowledgeGraph.load(folder)
    (folder / "valid.txt").write_text("\n")
    with pytest.raises(ValueError, match="holds no triples"):
        KnowledgeGraph.load(folder)
    (folder / "train.txt").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"no train.txt .* only \['test.txt', 'valid.txt'\]"
    ):
        KnowledgeGraph.load(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a\tr\t\xe9\n", "train.txt is not in UTF-8"),
        (b"a\tr\tb\na\tr\t\n", "line 2: .* none empty, got 3 columns"),
        (b"a\tr\tb\t1\n", "line 1: .* got 4 columns"),
        (b"", "train.txt holds no triples"),
    ],
)
def test_text_that_can_not_be_right(tmp_path, text, message):
    (tmp_path / "train.txt").write_bytes(text)
    with pytest.raises(ValueError, match=message):
        KnowledgeGraph.load(tmp_path)


def test_what_other_systems_write(tmp_path):
    """A mark of the byte order, lines that end in two characters, separators within names."""
    text = "\ufeffa\tr\tb\u2028c\r\nb\x0cd\tr\ta\r\n"
    (tmp_path / "train.txt").write_bytes(text.encode())
    assert set(KnowledgeGraph.load(tmp_path).entities) == {"a", "b\u2028c", "b\x0cd"}


def test_npz(tmp_path):
    file = tmp_path / "kg.npz"
    arrays = {"train": IDS[:2], "valid": IDS[2:3], "test": IDS[3:]}
    np.savez(file, **{name: x.numpy() for name, x in arrays.items()},
             entity_names=np.array(["a", "b", "c"]), relation_names=np.array(["r", "s"]))  # fmt: skip
    graph = KnowledgeGraph.load(file)
    assert ids(graph) == WANTED
    assert graph.relations == ("r", "s")
    np.savez(file, train=IDS.numpy())
    with pytest.raises(ValueError, match=r"no array 'entity_names', only \['train'\]"):
        KnowledgeGraph.load(file)
    np.savez(file, train=IDS.numpy().astype(object), entity_names=[], relation_names=[])
    with pytest.raises(ValueError, match=r"kg\.npz: Object arrays"):
        KnowledgeGraph.load(file)
    file.write_text("text")
    with pytest.raises(ValueError, match=r"is no \.npz"):
        KnowledgeGraph.load(file)


@pytest.mark.skipif(not (DATA / "kg_umls.npz").exists(), reason="set TENSUS_DATA to the data")
def test_a_known_name():
    graph = KnowledgeGraph.load("umls")
    assert (graph.num_entities, graph.num_relations) == (135, 46)
    assert [len(x) for x in (graph.train, graph.valid, graph.test)] == [5327, 569, 633]


def test_pyg():
    data = pytest.importorskip("torch_geometric.data")

    def part(rows):
        head, relation, tail = rows.T
        return {"edge_index": torch.stack([head, tail]), "edge_type": relation}

    whole = data.Data(**part(IDS), num_nodes=3)
    parts = {"train": IDS[:2], "valid": IDS[2:3], "test": IDS[3:]}
    for split, rows in parts.items():  # RelLinkPredDataset; its edge_index has the inverses, too
        for name, value in part(rows).items():
            whole[f"{split}_{name}"] = value
    assert ids(KnowledgeGraph.from_pyg(whole)) == WANTED
    masked = data.Data(**part(IDS), num_nodes=3)  # WordNet18RR
    for k, mask in enumerate(("train_mask", "val_mask", "test_mask")):
        masked[mask] = torch.tensor([0, 0, 1, 2]) == k
    assert ids(KnowledgeGraph.from_pyg(masked)) == WANTED
    splits = [data.Data(**part(rows), num_nodes=5) for rows in parts.values()]  # FB15k_237
    graph = KnowledgeGraph.from_pyg(*splits)
    assert ids(graph) == WANTED
    assert graph.num_entities == 5

    class Toy(data.InMemoryDataset):
        def __init__(self):
            super().__init__()
            self.data, self.slices = self.collate([whole])

    assert ids(KnowledgeGraph.from_pyg(Toy())) == WANTED
    with pytest.raises(TypeError, match="attribute edge_index, got list"):
        KnowledgeGraph.from_pyg([])


def test_pykeen():
    names = {"entity_to_id": {"c": 2, "a": 0, "b": 1}, "relation_to_id": {"r": 0, "s": 1}}
    parts = [SimpleNamespace(mapped_triples=rows, **names) for rows in (IDS[:2], IDS[2:3], IDS[3:])]
    graph = KnowledgeGraph.from_pykeen(*parts)
    assert ids(graph) == WANTED
    assert graph.entities == ("a", "b", "c")
    parts[1].relation_to_id = {"s": 0, "r": 1}
    with pytest.raises(ValueError, match="valid: relation_to_id is not that of the training"):
        KnowledgeGraph.from_pykeen(*parts)
    parts[0].entity_to_id = {"a": 0, "b": 1, "c": 5}
    with pytest.raises(ValueError, match="entity_to_id: expected the ids 0 to 2, each once"):
        KnowledgeGraph.from_pykeen(parts[0])
