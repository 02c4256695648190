"""Elimination: sum one index after the other, each time out of the product of all that have it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod

from tensus_tn.network.typing import Indices, Pairs


def min_fill_pairs(
    live: Mapping[int, Indices], output: Indices, sizes: Sequence[int], following: int
) -> Pairs:
    """Sum the indices that are not in the output, in min-fill order, then multiply what is left.

    Args:
        live: The indices of each operand, by its number.
        output: The indices to keep.
        sizes: The size of each index.
        following: The number of the first result; the next has the next number.
    """
    live, users, pairs = dict(live), users_of(live), Pairs()

    def multiply(numbers: Iterable[int], summed: int | None) -> None:
        nonlocal following
        queue = sorted(numbers, key=lambda n: prod(sizes[i] for i in live[n]))
        while len(queue) > 1:
            pairs.append((queue.pop(0), queue.pop(0)))
            merged = dict.fromkeys(i for n in pairs[-1] for i in live.pop(n))
            live[following] = tuple(i for i in merged if i != summed or queue)
            for index in merged:
                users[index] = users[index] - set(pairs[-1]) | {following}
            queue.insert(0, following)
            following += 1

    for index in min_fill_order(live.values(), set(output)):
        multiply(users[index], index)
    multiply(list(live), None)
    return pairs


def users_of(terms: Mapping[int, Indices]) -> dict[int, set[int]]:
    """For each index, the operands that it stands in."""
    users: dict[int, set[int]] = {}
    for number, term in terms.items():
        for index in term:
            users.setdefault(index, set()).add(number)
    return users


def min_fill_order(terms: Iterable[Indices], kept: set[int]) -> Iterator[int]:
    """Yield the indices to sum, each time the one whose neighbours lack the fewest links."""
    near: dict[int, set[int]] = {}
    for term in terms:
        for index in term:
            near.setdefault(index, set()).update(i for i in term if i != index)

    def fill(index: int) -> tuple[int, int, int]:
        around = near[index]
        links = sum(len(near[i] & around) for i in around) // 2
        return len(around) * (len(around) - 1) // 2 - links, len(around), index

    costs = {index: fill(index) for index in near if index not in kept}
    while costs:
        index = min(costs, key=costs.__getitem__)
        del costs[index]
        yield index
        around = near.pop(index)
        for i in around:
            near[i] |= around - {i}
            near[i].discard(index)
        for i in around.union(*(near[i] for i in around)) & costs.keys():
            costs[i] = fill(i)
