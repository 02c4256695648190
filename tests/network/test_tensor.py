import copy
import os
import pickle
import random
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch

from tensus_tn import Dag, DagTensor
from tests.network.networks import brute_force, random_index, random_tensor


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


def test_classic_forms_and_conversions_against_tensorly(tensorly):
    tt = DagTensor.tensor_train((3, 4, 5), rank={1: 2, 2: 3})
    torch.testing.assert_close(tensorly.tt_to_tensor(tt.to_tt()), tt.to_dense())
    torch.testing.assert_close(DagTensor.from_tt(tt.to_tt()).to_dense(), tt.to_dense())
    cp = DagTensor.cp((3, 4, 5), rank=2)
    torch.testing.assert_close(tensorly.cp_to_tensor(cp.to_cp()), cp.to_dense())
    _, factors = cp.to_cp()
    scaled = DagTensor.from_cp(torch.tensor([2.0, 3.0]), factors)
    expected = tensorly.cp_to_tensor((torch.tensor([2.0, 3.0]), factors))
    torch.testing.assert_close(scaled.to_dense(), expected)
    torch.testing.assert_close(DagTensor.from_cp(None, factors).to_dense(), cp.to_dense())
    one = DagTensor.rank_one((3, 4, 5))
    torch.testing.assert_close(tensorly.cp_to_tensor(one.to_cp()), one.to_dense())


def test_conversions_from_arrays():
    tt = DagTensor.tensor_train((3, 4, 5), rank=2, dtype=torch.float64)
    cores = [core.detach().numpy() for core in tt.to_tt()]
    torch.testing.assert_close(DagTensor.from_tt(cores).to_dense(), tt.to_dense())
    cp = DagTensor.cp((3, 4, 5), rank=2, dtype=torch.float64)
    factors = [factor.detach().numpy() for factor in cp.to_cp()[1]]
    scaled = DagTensor.from_cp(np.array([2.0, 2.0]), factors)
    torch.testing.assert_close(scaled.to_dense(), 2 * cp.to_dense())


def test_conversions_keep_the_widest_dtype():
    tt = DagTensor.tensor_train((3, 4, 5), rank=2, dtype=torch.float64)
    first, *rest = tt.to_tt()
    back = DagTensor.from_tt([first.float(), *rest])
    torch.testing.assert_close(back.to_tt()[1:], rest)
    weights, (first, *rest) = DagTensor.cp((3, 4), rank=2, dtype=torch.float64).to_cp()
    back = DagTensor.from_cp(weights.float(), [first.float(), *rest])
    torch.testing.assert_close(back.to_cp()[1][1:], rest)
    assert DagTensor.from_cp(weights, [first.float(), first.float()]).dtype == torch.float64
    assert DagTensor.from_cp(None, [first.half(), first.half()]).dtype == torch.float16


@pytest.mark.parametrize("convert", [DagTensor.to_tt, DagTensor.to_cp])
def test_softmax_networks_convert_with_their_normaliser(convert):
    ties = "node" if convert is DagTensor.to_tt else "global"
    t = DagTensor(Dag.path(3), choices=3, rank=2, ties=ties)
    back = DagTensor.from_tt(t.to_tt()) if ties == "node" else DagTensor.from_cp(*t.to_cp())
    torch.testing.assert_close(back.to_dense(), t.to_dense())


def test_conversions_that_are_not_exact_are_refused():
    with pytest.raises(ValueError, match="tensor train"):
        DagTensor(Dag.complete(2), choices=3, rank=2).to_tt()
    with pytest.raises(ValueError, match="tensor train"):
        DagTensor.cp((3, 4, 5), rank=2).to_tt()
    with pytest.raises(ValueError, match="is CP"):
        DagTensor.tensor_train((3, 4, 5), rank=2).to_cp()
    with pytest.raises(ValueError, match="core 1 does not fit"):
        DagTensor.from_tt([torch.ones(1, 2, 3), torch.ones(2, 2, 1)])
    for cores in ([], [torch.ones(())], [torch.ones(3, 1)]):
        with pytest.raises(ValueError, match="expected one or more cores"):
            DagTensor.from_tt(cores)
    for factors in ([], [torch.ones(2, 3), torch.ones(2, 4)]):
        with pytest.raises(ValueError, match="factors"):
            DagTensor.from_cp(None, factors)
    for shape in ((2, 1), (1,), ()):
        with pytest.raises(ValueError, match=r"expected weights \(3,\), got"):
            DagTensor.from_cp(torch.ones(shape), [torch.ones(2, 3), torch.ones(4, 3)])


@pytest.mark.parametrize("parametrization", ["softmax", "free"])
@pytest.mark.parametrize("seed", range(12))
def test_grow_and_shrink_keep_the_function(seed, parametrization):
    rng = random.Random(seed)
    t = random_tensor(rng, parametrization)
    new = {}
    for node, old in zip(t.dag.inner, t.structure.ranks, strict=False):
        new[node] = old * rng.randint(1, 3) + (
            rng.randint(0, 2) if parametrization == "free" else 0
        )
    if t.ties == "global":
        new = next(iter(new.values()), 1)
    large = t.grow(new)
    assert large.num_parameters >= t.num_parameters
    torch.testing.assert_close(large.to_dense(), t.to_dense())
    old_ranks = dict(zip(t.dag.inner, t.structure.ranks, strict=False))
    small = large.shrink(t.structure.ranks[0] if t.ties == "global" else old_ranks)
    torch.testing.assert_close(small.to_dense(), t.to_dense())
    assert small.structure == t.structure


def test_grow_with_noise_parts_the_copies():
    t = DagTensor(Dag.complete(3), choices=3, rank=2)
    copies = t.grow(4).cores()[1, 2]
    torch.testing.assert_close(copies[:, :2, :2], copies[:, 2:, 2:])
    parted = t.grow(4, noise=0.1, generator=torch.Generator().manual_seed(0)).cores()[1, 2]
    assert (parted[:, :2, :2] - parted[:, 2:, 2:]).abs().max() > 1e-3


def test_bad_ranks_for_grow_and_shrink():
    t = DagTensor(Dag.complete(3), choices=3, rank=2)
    with pytest.raises(ValueError, match="multiple of the other, got 2 and 3"):
        t.grow(3)
    with pytest.raises(ValueError, match="from 2 to 1 is neither"):
        t.grow(1)
    with pytest.raises(ValueError, match="from 2 to 4 is neither"):
        t.shrink(4)


def test_shrink_merges_the_states_that_are_alike():
    """States 0 and 3, 1 and 2 are nearly equal: merging them changes the tensor hardly."""
    t = DagTensor(Dag.path(3), choices=4, rank=2, dtype=torch.float64).grow(4)
    order = torch.tensor([0, 1, 1, 0])
    cores = list(t.cores().values())
    shuffled = copy.deepcopy(t)._filled(
        [
            cores[0][:, :, order].log(),
            cores[1][:, order][:, :, order].log() + 1e-4 * torch.randn(4, 4, 4),
            cores[2][:, order].log(),
        ]
    )
    torch.testing.assert_close(
        shuffled.shrink(2).to_dense(), shuffled.to_dense(), atol=1e-4, rtol=0
    )


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


def test_growing_sharp_cores_keeps_their_logarithms():
    """Probabilities that underflow must not become zeros that nothing can undo."""
    t = DagTensor(Dag.complete(3), choices=3, rank=2, init_scale=80.0)
    index = random_index(t.shape, 50)
    log_prob = t.log_prob(index)
    assert (log_prob < -100).any()
    torch.testing.assert_close(t.grow(4).log_prob(index), log_prob)
    torch.testing.assert_close(t.grow(4).shrink(2).log_prob(index), log_prob)


def test_a_tensor_train_of_many_softmax_cores_keeps_its_scale():
    t = DagTensor(Dag.path(600), choices=3, rank=4)
    assert all(core.abs().max() > 0 for core in t.to_tt())


def test_ranks_of_size_one_cost_nothing():
    """A product of 2,145 scalars, and a network with more than 64 nodes that meet in one clique."""
    t = DagTensor(Dag.complete(66), choices=2, rank=1, dtype=torch.float64)
    index = torch.zeros(t.ndim, dtype=torch.long)
    expected = sum(core.flatten()[0].log() for core in t.cores().values())
    torch.testing.assert_close(t.log_prob(index), expected)
    mixed = DagTensor(Dag.complete(12), 2, {k: 2 if k in (3, 7) else 1 for k in range(1, 12)})
    assert mixed.plan("entries").treewidth == 1
    assert mixed.cores()[3, 7].shape == (2, 2, 2)
    small = DagTensor(Dag.complete(3), choices=2, rank=1)
    torch.testing.assert_close(small.grow(2).to_dense(), small.to_dense())


def test_a_structure_is_hashed_anew_in_another_process():
    code = (
        "import pickle, sys; from tensus_tn import Dag, DagTensor;"
        "t = DagTensor(Dag([('x', 'y'), ('y', 'z')]), 3, 2);"
        "other = pickle.loads(sys.stdin.buffer.read()) if len(sys.argv) > 1 else None;"
        "sys.stdout.buffer.write(pickle.dumps(t.structure)) if other is None else"
        " print(other == t.structure, hash(other) == hash(t.structure))"
    )
    run = partial(subprocess.run, capture_output=True, check=True)
    first = run([sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": "1"}).stdout
    second = run(
        [sys.executable, "-c", code, "read"],
        input=first,
        env={**os.environ, "PYTHONHASHSEED": "2"},
    )
    assert second.stdout.split() == [b"True", b"True"]


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
        ({"choices": [1, 2]}, "distinct names"),
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
def test_cores_are_real_numbers(dtype):
    with pytest.raises(TypeError, match=f"dtype must be a floating-point type, got {dtype}"):
        DagTensor(Dag.path(3), choices=3, dtype=dtype)
