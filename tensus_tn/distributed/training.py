"""Data-parallel training: the mean over all processes, and gradients that are summed over them."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tensus_tn.distributed.handshake import quick_check, telling
from tensus_tn.distributed.processes import Processes


def global_mean(losses: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """This process's share of the mean of all processes' losses, times their number.

    `DistributedDataParallel` and FSDP average gradients over processes. Where batches are not of one
    size (the last one, or parts with few labels) the average of means is not the mean; with this as
    the loss it is, and processes without any loss take part too. Its average over the processes
    (`processes.sum(loss) / processes.size`) is the mean. All processes call this together.

    Args:
        losses: One number for each element of this process's batch (B,), B = 0 allowed.
        group: The processes; all if None.

    Example:
        >>> global_mean(torch.tensor([1.0, 2.0, 6.0]))  # alone: the mean
        tensor(3.)
    """
    processes = Processes.of(group)
    with telling(processes, quick_check):
        if not isinstance(losses, Tensor) or not losses.is_floating_point():
            given = losses.dtype if isinstance(losses, Tensor) else type(losses).__name__
            raise TypeError(f"losses must be a tensor of real numbers, got {given}")
    quick_check(processes, {})
    count = processes.sum(torch.tensor(float(losses.numel()), dtype=torch.float64))
    if count == 0:
        raise ValueError("no process has a loss: the batches of all are empty")
    return losses.sum() * (processes.size / count).to(losses.dtype)


def sum_gradients(
    parameters: Iterable[nn.Parameter], group: dist.ProcessGroup | None = None
) -> None:
    """Replace every gradient by the sum over all processes, in one exchange; all call this together.

    For parameters that every process has, where each has a share of the loss: after a backward pass
    over a `DistributedGraph`, say. A gradient that is None counts as zero where others have one.

    Example:
        >>> w = nn.Parameter(torch.ones(2))
        >>> (3 * w).sum().backward()
        >>> sum_gradients([w])
        >>> w.grad  # alone: as it was
        tensor([3., 3.])
    """
    processes = Processes.of(group)
    if processes.size == 1:
        return
    with telling(processes, quick_check):
        trained = [p for p in parameters if p.requires_grad]
        for p in trained:
            if p.grad is not None and p.grad.layout != torch.strided:
                raise TypeError(
                    f"gradients must be dense, got {p.grad.layout} of a parameter {tuple(p.shape)}"
                )
    quick_check(processes, {"parameters": [(tuple(p.shape), p.dtype) for p in trained]})
    present = processes.sum(torch.tensor([float(p.grad is not None) for p in trained])) > 0
    kept = [p for p, there in zip(trained, present.tolist(), strict=True) if there]
    for dtype in sorted({p.dtype for p in kept}, key=str):
        some = [p for p in kept if p.dtype == dtype]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in some]
        total = processes.sum(torch.cat([grad.flatten() for grad in grads]))
        for p, part in zip(some, total.split([p.numel() for p in some]), strict=True):
            p.grad = part.view_as(p)
