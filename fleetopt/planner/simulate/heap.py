"""Two heaps for compiled loops: replicas by a key that changes, and sequences by when they end."""

from dataclasses import dataclass

import numpy as np

from fleetopt.planner.simulate.compiled import compiled, rows
from fleetopt.planner.simulate.state import Request


@dataclass(slots=True)
class Rank:
    """Row i of a ranking: the key and the place of item i, and the item at place i."""

    key: float = 0.0
    place: int = 0
    item: int = 0


Ranking = list[Rank]
"""Items in heap order of their keys; the least is `ranks[0].item`."""


def ranking(count: int, key: float) -> Ranking:
    """Items with the same key."""
    index = np.arange(count)
    return rows(Rank, count, key=np.full(count, key), place=index, item=index)


@compiled
def move(ranks: Ranking, item: int, key: float) -> None:
    """Give one item another key."""
    ranks[item].key = key
    at = ranks[item].place
    while at > 0:
        above = (at - 1) >> 1
        other = ranks[above].item
        if ranks[other].key <= key:
            break
        ranks[at].item = other
        ranks[other].place = at
        at = above
    size = len(ranks)
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        right = below + 1
        if right < size and ranks[ranks[right].item].key < ranks[ranks[below].item].key:
            below = right
        other = ranks[below].item
        if ranks[other].key >= key:
            break
        ranks[at].item = other
        ranks[other].place = at
        at = below
    ranks[at].item = item
    ranks[item].place = at


@compiled
def push(heap: list[int], base: int, size: int, requests: list[Request], r: int) -> None:
    """Add r to the heap of `size` requests at heap[base:], ordered by their last iteration."""
    _rise(heap, base, size, requests, r)


@compiled
def _rise(heap: list[int], base: int, at: int, requests: list[Request], r: int) -> int:
    key = requests[r].last_iteration
    while at > 0:
        above = (at - 1) >> 1
        other = heap[base + above]
        if requests[other].last_iteration <= key:
            break
        heap[base + at] = other
        at = above
    heap[base + at] = r
    return at


@compiled
def remove(heap: list[int], base: int, size: int, requests: list[Request], at: int) -> None:
    """Take the request at a place off the heap of `size` requests at heap[base:]."""
    last = size - 1
    if at == last:
        return
    r = heap[base + last]
    key = requests[r].last_iteration
    at = _rise(heap, base, at, requests, r)
    while True:
        below = 2 * at + 1
        if below >= last:
            break
        if (
            below + 1 < last
            and requests[heap[base + below + 1]].last_iteration
            < requests[heap[base + below]].last_iteration
        ):
            below += 1
        other = heap[base + below]
        if requests[other].last_iteration >= key:
            break
        heap[base + at] = other
        at = below
    heap[base + at] = r
