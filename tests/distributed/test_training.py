import pytest
import torch
from torch import nn

from tensus_tn.distributed import global_mean, sum_gradients
from tests.distributed import tasks


def test_alone():
    losses = torch.tensor([1.0, 3.0], requires_grad=True)
    global_mean(losses).backward()
    assert losses.grad.tolist() == [0.5, 0.5]
    with pytest.raises(ValueError, match="the batches of all are empty"):
        global_mean(torch.zeros(0))
    w = nn.Parameter(torch.ones(1))
    sum_gradients([w])
    assert w.grad is None


def test_gradients_and_means_over_processes(crew):
    for mean, grads in crew.run(3, tasks.uneven):
        assert mean == pytest.approx((1 + 1 + 2) / 3)  # process 0 has no loss, 1 has one, 2 has two
        assert grads == [[0.0, 1.0 + 2.0], [3.0], None]


@pytest.mark.parametrize("how", ["ddp", "fsdp"])
@pytest.mark.parametrize("draw", [False, True])
def test_blocks_in_parallel_are_the_double_batch(crew, how, draw):
    """Losses of two processes against one with batches of twice the size; the last one is uneven."""
    for losses, parameters in crew.run(2, tasks.over_blocks, how, draw):
        assert losses < 1e-6
        assert parameters < 1e-5
