"""Blocks of a graph in plain Python: what some nodes depend on, with a few edges of each segment."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from tensus_tn.propagation.segments import Segments, transpose

_BITS = 2**64 - 1


def sample_block(
    seeds: Tensor, forward: Sequence[Tensor], fan_out: Sequence[int], relations: int, seed: int
) -> list[Tensor]:
    """The operator `tensus_tn::sample_block`, see `csrc/cpu/sample.h`: the same draws, edge by edge."""
    row_ptr, seg_rel, seg_ptr, col = (part.tolist() for part in forward[:4])
    hop_of, frontier = dict.fromkeys(seeds.tolist(), 0), list(dict.fromkeys(seeds.tolist()))
    drawn: dict[int, list[tuple[int, list[int]]]] = {}  # of each node: its segments and their edges
    for hop in range(len(fan_out) // relations if relations else 0):
        following = []
        for node in frontier:
            drawn[node] = []
            for segment in range(row_ptr[node], row_ptr[node + 1]):
                count = fan_out[hop * relations + seg_rel[segment]]
                begin, end = seg_ptr[segment], seg_ptr[segment + 1]
                if count == 0:
                    continue
                kept: Sequence[int] = range(end - begin)
                if 0 < count < end - begin:
                    kept = _draw(_bits(_bits(seed) ^ segment), end - begin, count)
                edges = [begin + k for k in kept]
                drawn[node].append((segment, edges))
                for other in (col[e] for e in edges):
                    if other not in hop_of:
                        hop_of[other] = hop + 1
                        following.append(other)
        frontier = following
    nodes = sorted(hop_of)
    rank = {node: row for row, node in enumerate(nodes)}
    rows = [drawn.get(node, []) for node in nodes]
    segments = [pair for row in rows for pair in row]
    edges = [e for _, kept in segments for e in kept]

    def index(numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int32)

    block = Segments(
        row_ptr=index([0, *accumulate(map(len, rows))]),
        seg_rel=index([seg_rel[segment] for segment, _ in segments]),
        seg_ptr=index([0, *accumulate(len(kept) for _, kept in segments)]),
        col=index([rank[col[e]] for e in edges]),
    )
    numbers = (nodes, [rank[n] for n in seeds.tolist()], [s for s, _ in segments], edges)
    return [
        *(torch.tensor(ids, dtype=torch.int64) for ids in numbers),
        *block.structure(),
        *transpose(block, relations).structure(),
    ]


def _bits(state: int) -> int:
    """The next number of a SplitMix64 stream, from its state before."""
    z = (state + 0x9E3779B97F4A7C15) & _BITS
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _BITS
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _BITS
    return z ^ (z >> 31)


def _draw(state: int, total: int, count: int) -> list[int]:
    """`count` different numbers below `total`, ascending: Floyd's algorithm."""
    drawn: set[int] = set()
    for k, last in enumerate(range(total - count, total)):
        number = (_bits((state + k * 0x9E3779B97F4A7C15) & _BITS) * (last + 1)) >> 64
        drawn.add(last if number in drawn else number)
    return sorted(drawn)
