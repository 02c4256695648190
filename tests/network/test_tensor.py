import copy
import pickle

import pytest
import torch

from tensus_tn import Dag, DagTensor, complete, decompose
from tests.network.networks import brute_force, random_index


def test_construction():
    dag = Dag([("x", "a"), ("a", "y"), ("x", "y")])
    choices = {("x", "a"): ["AP", "PA"], ("a", "y"): 3, ("x", "y"): 4}
    t = DagTensor(dag, choices, rank={"a": 5}, dtype=torch.float64)
    assert t.shape == (2, 3, 4)
    assert t.ndim == 3
    assert t.dtype == torch.float64
    assert t.num_parameters == 2 * 5 + 3 * 5 + 4
    assert {e: tuple(c.shape) for e, c in t.cores().items()} == {
        ("x", "a"): (2, 1, 5),
        ("a", "y"): (3, 5, 1),
        ("x", "y"): (4, 1, 1),
    }
    assert t.choice_names == {("x", "a"): ("AP", "PA")}
    by_name, by_number = t.condition({("x", "a"): "PA"}), t.condition({("x", "a"): 1})
    torch.testing.assert_close(by_name.to_dense(), by_number.to_dense())


def test_initial_values():
    dag = Dag.complete(4)
    generator = torch.Generator().manual_seed(3)
    first = DagTensor(dag, 5, 3, generator=generator)
    again = DagTensor(dag, 5, 3, generator=torch.Generator().manual_seed(3))
    assert all(map(torch.equal, first.parameters(), again.parameters()))
    flat = DagTensor(dag, 3, 2, init_scale=0.0)
    torch.testing.assert_close(flat.to_dense(), torch.full((3,) * 10, 3.0**-10))
    entries = [
        DagTensor(Dag.path(4), 6, 4, parametrization="free", init_scale=0.5).to_dense().detach()
        for _ in range(100)
    ]
    assert 0.35 < torch.stack(entries).std() < 0.65


def test_rank_one_is_a_product():
    """Eq. 6: with d = 1 the tensor is the outer product of the edges' weights (DiffMG, GTN)."""
    t = DagTensor(Dag.complete(2), choices=3, rank=1)
    a, b, c = (core.flatten() for core in t.cores().values())
    torch.testing.assert_close(t.to_dense(), torch.einsum("i,j,k->ijk", a, b, c))


def test_a_path_is_the_tensor_train():
    """Eq. 9, over the number of rank states."""
    t = DagTensor(Dag.path(4), choices=3, rank=2)
    cores = [core.squeeze() for core in t.cores().values()]
    expected = torch.einsum("ia,jab,kbc,lc->ijkl", *cores) / 2**3
    torch.testing.assert_close(t.to_dense(), expected)


def test_three_states():
    """Eq. 11: the branch 0 -> 1 -> 2 of rank d times the branch 0 -> 2."""
    t = DagTensor(Dag.complete(2), choices=3, rank=2)
    w01, w02, w12 = (core.flatten(1) for core in t.cores().values())
    expected = torch.einsum("ia,ka,j->ijk", w01, w12, w02.flatten()) / 2
    torch.testing.assert_close(t.to_dense(), expected)


def test_the_complete_dag():
    """Eq. 12 with two inner states, written out."""
    t = DagTensor(Dag.complete(3), choices=2, rank=3)
    w = {edge: core.squeeze() for edge, core in t.cores().items()}
    expected = torch.einsum(
        "ia,jb,k,lab,ma,nb->ijklmn",
        w[0, 1], w[0, 2], w[0, 3], w[1, 2], w[1, 3], w[2, 3],
    ) / 3**2  # fmt: skip
    torch.testing.assert_close(t.to_dense(), expected)


def test_global_ties_are_cp():
    """Eq. 1: one rank index for all cores."""
    t = DagTensor.cp((3, 4, 5), rank=6)
    factors = [core.flatten(1) for core in t.cores().values()]
    torch.testing.assert_close(t.to_dense(), torch.einsum("ir,jr,kr->ijk", *factors))


@pytest.mark.parametrize("parametrization", ["softmax", "free"])
def test_copies_and_files(tmp_path, parametrization):
    t = DagTensor(Dag.complete(3), choices=3, rank=2, parametrization=parametrization)
    index = random_index(t.shape, 10)
    value = t[index]
    torch.save(t.state_dict(), tmp_path / "state.pt")
    loaded = DagTensor(Dag.complete(3), choices=3, rank=2, parametrization=parametrization)
    loaded.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for twin in (loaded, copy.deepcopy(t), pickle.loads(pickle.dumps(t))):
        assert torch.equal(twin[index], value)
    torch.testing.assert_close(t.double()[index], value.double())
    assert t.to(torch.float64).dtype == torch.float64
    assert t.to("cpu") is t


def test_repr():
    t = DagTensor(Dag.path(2), choices=3, rank=2)
    assert repr(t) == (
        "DagTensor(Dag([(0, 1), (1, 2)]), choices=3, rank=2, "
        "parametrization='softmax', ties='node')"
    )
    assert repr(t.condition({(0, 1): 2})) == repr(t) + ".condition({(0, 1): 2})"
    assert "choices=[3, 4]" in repr(DagTensor.tensor_train((3, 4), rank=2))


def test_training_by_gradients_recovers_a_distribution():
    truth = DagTensor(Dag.complete(2), choices=3, rank=2, dtype=torch.float64)
    t = DagTensor(Dag.complete(2), choices=3, rank=2, dtype=torch.float64, init_scale=0.1)
    target = truth.to_dense().detach()
    optimizer = torch.optim.Adam(t.parameters(), lr=0.05)
    for _ in range(300):
        optimizer.zero_grad()
        loss = -(target * t.to_dense().log()).sum()
        loss.backward()
        optimizer.step()
    assert loss - truth.entropy() < 1e-3
    torch.testing.assert_close(brute_force(t), target, atol=0.01, rtol=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rank": 0}, "rank must be a positive integer, got 0"),
        ({"rank": {1: 0, 2: 2}}, "rank of node 1 must be a positive integer, got 0"),
        ({"rank": 1.5}, "positive integer, got 1.5"),
        ({"rank": {1: 2}}, "rank has nothing for inner node 2"),
        ({"rank": {1: 2, 2: 2, 9: 2}}, "rank names 9"),
        ({"choices": 0}, "positive integer, got 0"),
        ({"choices": {(0, 1): 3}}, r"choices has nothing for edge \(1, 2\)"),
        ({"choices": {(0, 9): 3}}, r"choices names \(0, 9\)"),
        ({"choices": ["A", "A"]}, "distinct names"),
        ({"choices": [1, 2]}, "2 sizes for 3 edges"),
        ({"choices": ["A", 2]}, "distinct names"),
        ({"rank": [2]}, "rank has 1 numbers for 2 inner nodes"),
        ({"rank": [2, 2, 2, 1]}, "rank has 4 numbers for 2 inner nodes"),
        ({"rank": [2, 0]}, "rank of node 2 must be a positive integer, got 0"),
        ({"parametrization": "linear"}, "'softmax' or 'free', got 'linear'"),
        ({"ties": "edge"}, "'node' or 'global', got 'edge'"),
        ({"ties": "global", "rank": {1: 2, 2: 3}}, "one rank for all inner nodes"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        DagTensor(**{"dag": Dag.path(3), "choices": 3, "rank": 2, **arguments})


def test_a_dag_is_needed():
    with pytest.raises(TypeError, match="dag must be a Dag, got list"):
        DagTensor([(0, 1)], choices=3)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.int64, torch.bool])
def test_softmax_cores_are_real_numbers(dtype):
    with pytest.raises(TypeError, match=f"dtype must be a floating-point type.* got {dtype}"):
        DagTensor(Dag.path(3), choices=3, dtype=dtype)


def test_free_cores_are_numbers():
    with pytest.raises(TypeError, match=r"complex for free cores, got torch.int64"):
        DagTensor(Dag.path(3), choices=3, parametrization="free", dtype=torch.int64)


@pytest.mark.parametrize(
    "make",
    [
        lambda: DagTensor(Dag.path(3), choices=3, rank=10**9),
        lambda: DagTensor(Dag.path(3), choices=10**15, rank=1),
        lambda: DagTensor.tensor_train((3, 3, 3), rank=10**9),
        lambda: DagTensor.cp((3, 3), rank=10**15),
        lambda: DagTensor.rank_one((10**15, 3)),
        lambda: DagTensor(Dag.path(3), choices=3, rank=1).grow(10**9),
        lambda: decompose(torch.ones(2, 2, 2), Dag.path(3), rank=10**9),
        lambda: complete(torch.zeros(1, 3).long(), torch.ones(1), Dag.path(3), 3, rank=10**9),
    ],
)
def test_more_parameters_than_memory_are_refused_with_their_size(make):
    with pytest.raises(ValueError, match=r"[\d,]{12,} parameters .* take [\d,]+ bytes, more than"):
        make()


def test_the_largest_of_sizes_may_live_on_the_meta_device():
    assert DagTensor(Dag.path(3), choices=3, rank=10**7, device="meta").num_parameters > 10**14


class Unhashable:
    __hash__ = None

    def __call__(self, inputs, output, sizes, memory_limit=None):
        return [(0, 1)]


@pytest.mark.parametrize(
    ("optimize", "error", "message"),
    [
        ("fast", ValueError, "optimize: .*'fast' not found"),
        ([(0, 1)], TypeError, r"a name or an optimizer of opt_einsum, got \[\(0, 1\)\]"),
        (None, TypeError, "a name or an optimizer of opt_einsum, got None"),
        (Unhashable(), TypeError, "optimize must be hashable.*got Unhashable"),
    ],
)
def test_bad_optimize(optimize, error, message):
    with pytest.raises(error, match=message):
        DagTensor(Dag.path(3), choices=3, rank=2, optimize=optimize)


def test_a_notebook_shows_the_most_probable_choices():
    t = DagTensor(Dag.path(2), choices=["a", "b"], rank=2)
    with torch.no_grad():
        t.core_0[1], t.core_1[0] = 50.0, 50.0
    picture = t._repr_html_()
    assert ">b 100 %</text>" in picture
    assert ">a 100 %</text>" in picture
    assert ">3 choices</text>" in DagTensor.tensor_train((3, 3), rank=2)._repr_html_()
