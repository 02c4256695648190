"""Tensor trains and CP decompositions, to and from the layout of TensorLy."""

import numpy as np
import pytest
import torch

from tensus_tn import Dag, DagTensor


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
    cores = tt.to_tt(numpy=True)
    assert all(isinstance(core, np.ndarray) for core in cores)
    torch.testing.assert_close(DagTensor.from_tt(cores).to_dense(), tt.to_dense())
    cp = DagTensor.cp((3, 4, 5), rank=2, dtype=torch.float64)
    weights, factors = cp.to_cp(numpy=True)
    torch.testing.assert_close(DagTensor.from_cp(weights, factors).to_dense(), cp.to_dense())
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


def test_a_tensor_train_of_many_softmax_cores_keeps_its_scale():
    t = DagTensor(Dag.path(600), choices=3, rank=4)
    assert all(core.abs().max() > 0 for core in t.to_tt())
