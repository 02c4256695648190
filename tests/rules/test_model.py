"""RuleModel: its parts, its symmetries, other graphs, files."""

import pytest
import torch

from tensus_tn import Dag
from tensus_tn.rules import KnowledgeGraph, RuleModel
from tests.rules.graphs import random_graph, training_queries


@pytest.mark.parametrize("weights", ["signed", "softmax"])
@pytest.mark.parametrize("ties", ["node", "global"])
@pytest.mark.parametrize("dag", [Dag.path(3), Dag.complete(3)], ids=["path", "complete"])
def test_a_score_is_a_sum_of_entries_over_walks(dag, ties, weights):
    """On a path, entry by entry of the tensor; on a DAG, by the weights of propagation."""
    graph = random_graph(5, 1, 6, test=0, isolated=0)
    model = RuleModel(graph, dag=dag, rank=2, ties=ties, weights=weights, popularity=False,
                      scaling="none", dtype=torch.float64)  # fmt: skip
    head, _, tail = graph.train.T
    A = torch.zeros(3, 5, 5, dtype=torch.float64)
    A[0, tail, head] = 1
    A[1] = A[0].T
    A[2] = torch.eye(5)
    got = model.scores([("r0", "e1")])[0]
    if dag == Dag.path(3):
        dense = model.tensor("r0").to_dense().detach()
        want = torch.einsum("abc,cwz,bzy,ay->w", dense, A, A, A[:, :, 1])
    else:
        state = {0: torch.eye(5, dtype=torch.float64)[:, [1]]}
        for node in (1, 2, 3):
            state[node] = sum(
                torch.einsum("ipq,ivu,up->vq", model.weights()[j, node][0].detach(), A, state[j])
                for j in range(node)
            )
        want = state[3][:, 0]
    torch.testing.assert_close(got, want)


def test_permutations_of_entities_and_relations():
    graph = random_graph(8, 3, 20, isolated=0)
    model = RuleModel(graph, steps=2, rank=2, dtype=torch.float64)
    with torch.no_grad():
        model.popularity.normal_()
    g = torch.Generator().manual_seed(1)
    of_entity, of_relation = torch.randperm(8, generator=g), torch.randperm(3, generator=g)

    def moved(triples):
        h, r, t = triples.T
        return torch.stack([of_entity[h], of_relation[r], of_entity[t]], 1)

    def names(old, order):
        return [old[k] for k in order.argsort().tolist()]

    other_graph = KnowledgeGraph.from_triples(
        moved(graph.train), test=moved(graph.test),
        entities=names(graph.entities, of_entity), relations=names(graph.relations, of_relation),
    )  # fmt: skip
    other = RuleModel(other_graph, steps=2, rank=2, dtype=torch.float64)
    asked = torch.cat([of_relation, of_relation + 3])
    operators = torch.cat([asked, torch.tensor([6])])
    with torch.no_grad():
        for mine, theirs in zip(model._cores(), other._cores(), strict=True):
            theirs[asked] = mine[:, operators.argsort()]
        other.popularity[asked] = model.popularity
    for relation in graph.relations:
        for start in graph.entities:
            x, y = model.scores([(relation, start)])[0], other.scores([(relation, start)])[0]
            torch.testing.assert_close(y[of_entity], x)
    first, second = model.rank(ties="mean"), other.rank(ties="mean")
    assert first.metrics() == pytest.approx(second.metrics())
    assert first.per_relation()["r0"] == pytest.approx(second.per_relation()["r0"])


def test_another_graph_with_other_entities():
    def family(people):
        born = [(f"{p}", "parent", f"{p}'s child") for p in people]
        return born + [(f"{p}'s child", "child", f"{p}") for p in people[:-1]]

    graph = KnowledgeGraph.from_triples(family([f"a{k}" for k in range(12)]))
    model = RuleModel(graph, steps=1, rank=1)
    model.fit(epochs=40, progress=False)
    new = KnowledgeGraph.from_triples(family(["x", "y", "z"]))
    best = model.scores([("child", "z's child")], graph=new)[0].argmax()
    assert new.entities[int(best)] == "z"
    wanted = [("z's child", "child", "z")]
    ranking = model.rank(wanted, graph=new)
    assert ranking.metrics("pessimistic", ask="tail")["hits@1"] == 1
    turned = KnowledgeGraph.from_triples(list(reversed(family(["x", "y", "z"]))))
    turned = turned.with_relations(graph.relations)
    best = model.scores([("child", "z's child")], graph=turned)[0].argmax()
    assert turned.entities[int(best)] == "z"
    strange = KnowledgeGraph.from_triples([("a", "other", "b")])
    with pytest.raises(ValueError, match="must have the relations of the model"):
        model.scores([("child", "a")], graph=strange)


def test_scores_keep_the_order_of_the_queries():
    graph = random_graph()
    model = RuleModel(graph, steps=2)
    several = [("r2", "e0"), ("r0", "e1"), ("r1", "e3"), ("r0", "e0")]
    got = model.scores(several)
    for row, query in zip(got, several, strict=True):
        torch.testing.assert_close(row, model.scores([query])[0])
    ids = torch.tensor([[2, 0], [0, 1], [1, 3], [0, 0]])
    assert torch.equal(model.scores(ids), got)
    assert model.scores([]).shape == (0, graph.num_entities)


@pytest.mark.parametrize("ties", ["node", "global"])
@pytest.mark.parametrize("nodes", ["abc", (0, 1, 2), ("10", "2", 10)])
def test_a_file(tmp_path, ties, nodes):
    graph = random_graph()
    a, b, c = nodes
    model = RuleModel(graph, dag=Dag([(a, b), (b, c), (a, c)]), rank=3, ties=ties)
    model.save(tmp_path / "model.pt")
    again = RuleModel.load(tmp_path / "model.pt", graph)
    assert again.dag == model.dag
    assert torch.equal(model.scores([("r0", "e0")]), again.scores([("r0", "e0")]))
    with pytest.raises(ValueError, match="made for other relations"):
        RuleModel.load(tmp_path / "model.pt", KnowledgeGraph.from_triples([("a", "s", "b")]))
    (tmp_path / "model.pt").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"model\.pt is not a checkpoint, or is damaged"):
        RuleModel.load(tmp_path / "model.pt", graph)


def test_a_file_holds_no_other_nodes(tmp_path):
    model = RuleModel(random_graph(), dag=Dag([(0, (1, 2)), ((1, 2), 3)]))
    with pytest.raises(TypeError, match=r"integers or strings, got \(1, 2\)"):
        model.save(tmp_path / "model.pt")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"weights": "free"}, ValueError, "weights must be 'signed' or 'softmax'"),
        ({"steps": 2, "dag": Dag.path(2)}, ValueError, "not both"),
        ({"steps": 0}, ValueError, "steps must be a positive integer"),
        ({"rank": 0}, ValueError, "rank must be a positive integer"),
        ({"rank": 10**9, "steps": 3}, ValueError, "parameters of torch.float32 take .* bytes"),
        ({"rank": 10**5, "dag": Dag.complete(4)}, ValueError, "more than the .* bytes of memory"),
        ({"steps": 10**9}, ValueError, "1,000,000,000 edges take"),
        ({"dtype": torch.bfloat16}, TypeError, "float32 or float64"),
        ({"ties": "all"}, ValueError, "ties must be"),
    ],
)
def test_errors(arguments, error, message):
    with pytest.raises(error, match=message):
        RuleModel(random_graph(), **arguments)


def test_walks_run_where_the_cores_are():
    """On `meta`, the device without values: what stayed on the CPU would be met by an operation."""
    graph = random_graph()
    model = RuleModel(graph, steps=2).to("meta")
    assert model.scores([("r0", 1)]).is_meta
    loss = model.loss(training_queries(graph))
    loss.backward()
    assert loss.is_meta
    assert all(parameter.grad.is_meta for parameter in model.parameters())


def test_wrong_queries():
    model = RuleModel(random_graph(), steps=1)
    with pytest.raises(TypeError, match="must be a KnowledgeGraph, got list"):
        RuleModel([])
    with pytest.raises(ValueError, match="no relation 'aunt'"):
        model.scores([("aunt", "e0")])
    with pytest.raises(ValueError, match=r"expected queries \(Q, 2\), got"):
        model.scores(torch.zeros(3).long())
    with pytest.raises(ValueError, match="below"):
        model.scores(torch.tensor([[99, 0]]))
    with pytest.raises(TypeError, match=r"queries of integers, got torch\.float32"):
        model.scores(torch.tensor([[0.9, 1.9]]))
