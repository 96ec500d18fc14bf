"""The slot-level loop: c servers, first come, first served, service times given."""

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.simulate.compiled import IS_COMPILED, compiled

Array = NDArray[np.float64]


def waits_s(arrival_s: Array, service_s: Array, servers: int) -> Array:
    """How long each request waits for a server.

    Parameters
    ----------
    arrival_s : array, shape (requests,)
        In order.
    service_s : array, shape (requests,)
        How long it then takes.
    servers : int
        c ≥ 1.
    """
    if IS_COMPILED:
        wait_s = np.empty(arrival_s.size)
        _serve(arrival_s, service_s, np.full(min(servers, max(arrival_s.size, 1)), -np.inf), wait_s)
        return wait_s
    free_s = [-np.inf] * min(servers, max(arrival_s.size, 1))
    waits = []
    for now, service in zip(arrival_s.tolist(), service_s.tolist(), strict=True):
        start = max(now, free_s[0])
        heapq.heapreplace(free_s, start + service)
        waits.append(start - now)
    return np.array(waits)


@compiled
def _serve(arrival_s: Any, service_s: Any, free_s: Any, wait_s: Any) -> None:
    """The same with a heap of our own, which Numba can compile."""
    size = len(free_s)
    for r in range(len(arrival_s)):
        now = arrival_s[r]
        start = max(now, free_s[0])
        wait_s[r] = start - now
        end = start + service_s[r]
        at = 0
        while True:
            below = 2 * at + 1
            if below >= size:
                break
            if below + 1 < size and free_s[below + 1] < free_s[below]:
                below += 1
            if free_s[below] >= end:
                break
            free_s[at] = free_s[below]
            at = below
        free_s[at] = end
