"""Every example of the gallery runs, and shows what it says."""

import importlib
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "docs" / "examples"


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module


def test_each_example_is_on_the_page_and_tested():
    page, here = (FOLDER / "index.md").read_text(), Path(__file__).read_text()
    for path in FOLDER.glob("*.py"):
        assert f'--8<-- "docs/examples/{path.name}"' in page
        assert f'example("{path.stem}")' in here


@pytest.mark.slow
def test_compress(example, tmp_path):
    pytest.importorskip("sklearn")
    errors = example("compress").main(str(tmp_path / "figure.png"))
    assert max(errors.values()) < 0.2
    assert errors["DAG"] < errors["tensor train"]
    assert (tmp_path / "figure.png").stat().st_size > 10_000


@pytest.mark.slow
def test_digits(example, tmp_path):
    pytest.importorskip("sklearn")
    scores = example("digits").main(str(tmp_path / "figure.png"))
    assert scores["rank 1"] < scores["chain"] < scores["mixture"] - 2
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_completion(example):
    seen, unseen = example("completion").main()
    assert seen < unseen < 1e-3


def test_meta_graph(example, tmp_path):
    found = example("meta_graph").main(str(tmp_path / "figure.png"))
    assert found[1][0] < 0.8
    assert found[2][0] > 0.95
    assert {str(m) for m in found[2][1]} == {"TMS: s -A-> m -B-> t", "TMS: s -C-> m -D-> t"}
    assert (tmp_path / "figure.png").stat().st_size > 5_000


@pytest.mark.slow
def test_pyg_nodes(example):
    pytest.importorskip("torch_geometric")
    assert min(example("pyg_nodes").main().values()) > 0.85


def test_recommendation(example):
    assert example("recommendation").main() > 0.8


def test_family_rules(example):
    ranking, rules = example("family_rules").main()
    assert ranking.mrr > 0.9
    assert "uncle(x, y) <- brother(x, z), parent(z, y)" in map(str, rules)
