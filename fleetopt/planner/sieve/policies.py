"""Ways to choose the next run: the sieve's, and the ones that it is compared with."""

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.sieve.grid import Grid, Point
from fleetopt.planner.sieve.sieve import Sieve, State

Order = NDArray[np.int64]
Choose = Callable[[Sieve, State, Order], Point | None]
"""From what is known to the next run. The order is a permutation of all runs, cell by cell."""


class Policy(StrEnum):
    """Names of the policies."""

    SIEVE = "sieve"
    RANDOM = "random"
    EXHAUSTIVE = "exhaustive"
    CHEAPEST = "cheapest"
    CAPACITY = "capacity"
    HALVING = "halving"


def choose(policy: Policy) -> Choose:
    """Return how a policy chooses."""
    return _CHOICES[policy]


def as_seen_by(policy: Policy, sieve: Sieve) -> Sieve:
    """Return the decision as a policy sees it: one that ignores tails has no target to hold."""
    if policy is not Policy.CAPACITY:
        return sieve
    patient = tuple(replace(one, slo_completion_p99_s=1e300) for one in sieve.grid.classes)
    return replace(sieve, grid=replace(sieve.grid, classes=patient))


def _by_sieve(sieve: Sieve, state: State, order: Order) -> Point | None:
    return sieve.next_run(state, _places(sieve.grid, order))


def _at_random(sieve: Sieve, state: State, order: Order) -> Point | None:
    made = int(state.evidence.runs.sum())
    return _point(sieve.grid, order[made] // sieve.grid.repeats) if made < order.size else None


def _in_turn(sieve: Sieve, state: State, order: Order) -> Point | None:
    return _first(sieve.grid, state, np.arange(sieve.grid.offered_per_s.size))


def _cheapest(sieve: Sieve, state: State, order: Order) -> Point | None:
    places = _places(sieve.grid, order)
    return _first(sieve.grid, state, np.lexsort((places, sieve.grid.cost_gpu_s.ravel())))


def _halving(sieve: Sieve, state: State, order: Order) -> Point | None:
    """Measure every class on every configuration in the middle, then the better half further.

    Better is what may serve more of a class per GPU. Within a round, the load next to the middle
    comes first.
    """
    classes, configurations, loads = sieve.grid.shape
    runs = state.evidence.runs.sum(axis=2)
    promise = state.usable_per_s.high / sieve.grid.gpus
    by_middle = np.argsort(np.abs(np.arange(loads) - loads // 2), kind="stable")
    alive = np.ones((classes, configurations), dtype=bool)
    full = loads * sieve.grid.repeats
    goal, keep = 1, configurations
    while True:
        behind = alive & (runs < min(goal, full))
        if behind.any():
            cells = np.argwhere(behind)
            places = _places(sieve.grid, order).reshape(sieve.grid.shape)[behind, 0]
            one, other = cells[np.argmin(places)]
            left = state.evidence.runs[one, other, by_middle]
            return Point(int(one), int(other), int(by_middle[np.argmin(left)]))
        if goal >= full and keep == 1:
            return _in_turn(sieve, state, order)
        goal, keep = 2 * goal, max(1, keep // 2)
        ranks = np.argsort(
            np.argsort(-np.where(alive, promise, -1.0), axis=1, kind="stable"), axis=1
        )
        alive &= ranks < keep


def _first(grid: Grid, state: State, cells: Order) -> Point | None:
    """Return the first of the cells with the fewest runs."""
    runs = state.evidence.runs.ravel()[cells]
    if int(runs.min()) >= grid.repeats:
        return None
    return _point(grid, cells[int(np.argmin(runs))])


def _point(grid: Grid, cell: int) -> Point:
    return Point(*map(int, np.unravel_index(cell, grid.shape)))


def _places(grid: Grid, order: Order) -> Order:
    """Return which of two equal cells comes first: that with the smaller number."""
    return np.asarray(order.reshape(-1, grid.repeats).min(axis=1))


_CHOICES: dict[Policy, Choose] = {
    Policy.SIEVE: _by_sieve,
    Policy.RANDOM: _at_random,
    Policy.EXHAUSTIVE: _in_turn,
    Policy.CHEAPEST: _cheapest,
    Policy.CAPACITY: _by_sieve,
    Policy.HALVING: _halving,
}
