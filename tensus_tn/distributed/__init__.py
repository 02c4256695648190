"""The same over several processes, on torch.distributed: parts of a graph, data-parallel training."""

from tensus_tn.distributed.graph import DistributedGraph
from tensus_tn.distributed.handshake import DisagreementError
from tensus_tn.distributed.partitioning import Partition, partition
from tensus_tn.distributed.processes import PeerError, Processes, init

__all__ = [
    "DisagreementError",
    "DistributedGraph",
    "Partition",
    "PeerError",
    "Processes",
    "init",
    "partition",
]
