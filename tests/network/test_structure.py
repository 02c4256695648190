"""The indices of a network, apart from its numbers."""

import os
import subprocess
import sys
from functools import partial

import pytest
import torch

from tensus_tn import Dag, DagTensor
from tensus_tn.network.structure import make_structure


def test_indices_sizes_and_shapes():
    dag = Dag.complete(3)
    s = make_structure(dag, dict.fromkeys(dag.edges, 5), {1: 2, 2: 1}, "node", normalized=True)
    assert s.ranks == (2, 1)
    assert s.sizes == (2, 1, 5, 5, 5, 5, 5, 5)
    assert s.core_ranks == ((0,), (), (), (0,), (0,), ())  # a rank of size 1 is none
    assert s.terms[0] == (2, 0)
    assert s.operand_shapes[:2] == ((5, 2), (5,))
    assert [s.core_shape(e) for e in (0, 3, 2)] == [(5, 1, 2), (5, 2, 1), (5, 1, 1)]
    fixed = s.fix(frozenset({0}))
    assert fixed.free == (1, 2, 3, 4, 5)
    assert fixed.terms[0] == (0,)
    assert fixed.shape == (5,) * 5


def test_one_rank_index_for_all_nodes():
    dag = Dag.path(3)
    s = make_structure(dag, dict.fromkeys(dag.edges, 5), 2, "global", normalized=False)
    assert s.ranks == (2,)
    assert s.terms == ((1, 0), (2, 0), (3, 0))
    with pytest.raises(ValueError, match="ties must be"):
        make_structure(dag, dict.fromkeys(dag.edges, 5), 2, "edge", normalized=False)


@pytest.mark.slow
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


def test_sizes_and_ranks_may_be_sequences():
    t = DagTensor(Dag.path(3), [4, 5, 6], [2, 3])
    assert t.shape == (4, 5, 6)
    assert t.structure.ranks == (2, 3)
    assert DagTensor.tensor_train((4, 5, 6), [1, 2, 3, 1]).structure.ranks == (2, 3)
    assert DagTensor(Dag.path(3), [4, 5, 6], (2, 3)).structure == t.structure
