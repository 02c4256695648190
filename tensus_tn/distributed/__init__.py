"""The same over several processes, on torch.distributed: parts of a graph, data-parallel training."""

from tensus_tn.distributed.graph import DistributedGraph
from tensus_tn.distributed.handshake import DisagreementError
from tensus_tn.distributed.partitioning import Partition, partition
from tensus_tn.distributed.processes import PeerError, Processes, init
from tensus_tn.distributed.training import global_mean, sum_gradients

__all__ = [
    "DisagreementError",
    "DistributedGraph",
    "Partition",
    "PeerError",
    "Processes",
    "global_mean",
    "init",
    "partition",
    "sum_gradients",
]
