import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tensus_tn.tasks.metrics import association, auc, f1


def f1_by_definition(predicted, labels):
    """Precision and recall of every class that occurs, as scikit-learn has it."""
    classes = sorted(set(predicted) | set(labels))
    pairs = list(zip(predicted, labels, strict=True))
    scores = []
    for c in classes:
        tp = sum(p == c == y for p, y in pairs)
        fp, fn = sum(p == c != y for p, y in pairs), sum(y == c != p for p, y in pairs)
        precision, recall = tp / (tp + fp) if tp + fp else 0, tp / (tp + fn) if tp + fn else 0
        both = precision + recall
        scores.append(2 * precision * recall / both if both else 0)
    return sum(scores) / len(scores), sum(p == y for p, y in pairs) / len(pairs)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40))
def test_f1(pairs):
    predicted, labels = zip(*pairs, strict=True)
    expected = f1_by_definition(predicted, labels)
    assert f1(torch.tensor(predicted), torch.tensor(labels), 5) == pytest.approx(expected)


@given(
    st.lists(st.integers(-3, 3), min_size=1, max_size=20),
    st.lists(st.integers(-3, 3), min_size=1, max_size=20),
)
def test_auc(positive, negative):
    pairs = [(p, n) for p in positive for n in negative]
    expected = sum((p > n) + 0.5 * (p == n) for p, n in pairs) / len(pairs)
    assert auc(torch.tensor(positive), torch.tensor(negative)) == pytest.approx(expected)


def test_against_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    predicted, labels = torch.randint(6, (2, 200))
    expected = [metrics.f1_score(labels, predicted, average=kind) for kind in ("macro", "micro")]
    assert f1(predicted, labels, 6) == pytest.approx(expected)
    positive, negative = torch.randn(2, 100)
    truth = torch.cat([torch.ones(100), torch.zeros(100)])
    expected = metrics.roc_auc_score(truth, torch.cat([positive, negative]))
    assert auc(positive, negative) == pytest.approx(expected)


def test_f1_of_several_classes_against_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    torch.manual_seed(0)
    predicted, labels = (torch.rand(2, 50, 4) < torch.tensor([0.5, 0.2, 0.9, 0.0])).long()
    expected = [
        metrics.f1_score(labels, predicted, average=average, zero_division=0)
        for average in ("macro", "micro")
    ]
    assert f1(predicted, labels, 4) == pytest.approx(expected)
    assert f1(predicted[:, 3:], labels[:, 3:], 1) == (0.0, 0.0)


def test_association_is_standard_normal_by_chance_and_grows_with_the_number():
    g = torch.Generator().manual_seed(0)
    chance = torch.tensor([0.6, 0.3, 0.1])
    drawn = [
        torch.eye(3)[torch.multinomial(chance, 2 * 300, replacement=True, generator=g)].chunk(2)
        for _ in range(400)
    ]
    found = torch.tensor([association(*pair) for pair in drawn])
    assert abs(found.mean()) < 0.2
    assert found.std() == pytest.approx(1, abs=0.15)
    labels = drawn[0][0]
    assert association(labels, labels) > 20
