"""Two heaps for compiled loops: replicas by a key that changes, and sequences by when they end."""

from typing import NamedTuple

import numpy as np

from fleetopt.planner.simulate.compiled import Floats, Ints, compiled, floats, ints


class Ranking(NamedTuple):
    """Replicas in heap order of a key; the least is at `order[0]`."""

    key: Floats  # by replica
    order: Ints  # replica by place
    place: Ints  # place by replica


def ranking(count: int, key: float) -> Ranking:
    """All replicas with the same key."""
    index = np.arange(count, dtype=np.int64)
    return Ranking(floats(np.full(count, key)), ints(index), ints(index))


@compiled
def move(ranks: Ranking, item: int, key: float) -> None:
    """Give one replica another key."""
    ranks.key[item] = key
    at = ranks.place[item]
    while at > 0:
        above = (at - 1) >> 1
        other = ranks.order[above]
        if ranks.key[other] <= key:
            break
        ranks.order[at] = other
        ranks.place[other] = at
        at = above
    size = len(ranks.order)
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        right = below + 1
        if right < size and ranks.key[ranks.order[right]] < ranks.key[ranks.order[below]]:
            below = right
        other = ranks.order[below]
        if ranks.key[other] >= key:
            break
        ranks.order[at] = other
        ranks.place[other] = at
        at = below
    ranks.order[at] = item
    ranks.place[item] = at


@compiled
def push(heap: Ints, base: int, size: int, key: Ints, item: int) -> None:
    """Add to the heap of `size` items at heap[base:], ordered by key[item]."""
    at = size
    mine = key[item]
    while at > 0:
        above = (at - 1) >> 1
        other = heap[base + above]
        if key[other] <= mine:
            break
        heap[base + at] = other
        at = above
    heap[base + at] = item


@compiled
def pop(heap: Ints, base: int, size: int, key: Ints) -> None:
    """Take the first item off the heap of `size` items at heap[base:]."""
    remove(heap, base, size, key, 0)


@compiled
def remove(heap: Ints, base: int, size: int, key: Ints, at: int) -> None:
    """Take the item at a place off the heap of `size` items at heap[base:]."""
    last = size - 1
    if at == last:
        return
    item = heap[base + last]
    mine = key[item]
    while at > 0:
        above = (at - 1) >> 1
        other = heap[base + above]
        if key[other] <= mine:
            break
        heap[base + at] = other
        at = above
    while True:
        below = 2 * at + 1
        if below >= last:
            break
        if below + 1 < last and key[heap[base + below + 1]] < key[heap[base + below]]:
            below += 1
        other = heap[base + below]
        if key[other] >= mine:
            break
        heap[base + at] = other
        at = below
    heap[base + at] = item
