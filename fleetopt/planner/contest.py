"""Both pools of many cells, sized together until only the cheapest fleet is left.

Every pool has a number of replicas that is known to be too few, and one that is known to be
enough or is of no interest. Together the two ends say what a fleet costs at least and at most,
so most cells drop out long before their counts are known.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.grid import ONE_POOL, Grid
from fleetopt.planner.pool import MOST_PER_LOAD, Pools, Sums, excess, late_shares, least_replicas
from fleetopt.planner.request import PlanRequest
from fleetopt.planner.ttft import Bursts

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Measure = Callable[[Pools, Array, PlanRequest, Bursts], Array]

_ROUNDING: Final = 1e-9
_FIRST_TRIES: Final = np.array([[1.0], [1.08], [1.3], [2.0]])
_AHEAD: Final = 2.0
_HALVE_EVERY: Final = 6
_FURTHEST: Final = -4.0
"""Where hardly anybody exceeds the target, the logarithm of the share is no longer straight."""


@dataclass(frozen=True)
class Sides:
    """The short pools of some cells, then their long ones; one pool is long, and has no other."""

    cells: Index
    batches: tuple[Pools, ...]  # one batch, or two where the engines differ
    least: Array  # (2 · cells,), replicas that utilisation and the minimum ask for
    price: Array  # (2 · cells,), of a replica
    fixed: Array  # (cells,), whatever the replicas

    @classmethod
    def of(cls, grid: Grid, cells: Index, short: Sums, long: Sums, fixed: Array) -> "Sides":
        """Of cells with their exact load and what they cost whatever the replicas."""
        request, count = grid.request, cells.size
        if request.short_profile is request.long_profile:
            batches: tuple[Pools, ...] = (grid.both_pools(cells, short, long),)
        else:
            batches = (grid.short_pools(cells, short), grid.long_pools(cells, long))
        least = least_replicas(np.concatenate([short.load, long.load]), request)
        least[:count][cells == ONE_POOL] = 0.0
        price = np.empty(2 * count)
        price[:count], price[count:] = request.short_rate.per_replica, request.long_rate.per_replica
        return cls(cells, batches, least, price, fixed)

    def cost(self, replicas: Array) -> Array:
        """What the fleets cost with so many."""
        paid = replicas * self.price
        return np.asarray(paid[: self.cells.size] + paid[self.cells.size :] + self.fixed)

    def excess(self, grid: Grid, index: Index, replicas: Array) -> Array:
        """By how much the pools at these indices exceed the target with so many."""
        return self._measured(excess, grid, index, replicas, np.zeros(index.size))

    def shares(self, grid: Grid, index: Index, replicas: Array) -> Array:
        """Which shares of their requests the pools at these indices keep waiting with so many.

        Beyond the target to the first token, and end to end: shape (2, indices).
        """
        return self._measured(late_shares, grid, index, replicas, np.zeros((2, index.size)))

    def _measured(
        self, measure: Measure, grid: Grid, index: Index, replicas: Array, result: Array
    ) -> Array:
        is_short = index < self.cells.size
        sides = (is_short, ~is_short) if len(self.batches) > 1 else (index >= 0,)
        for pools, side, first in zip(self.batches, sides, (0, self.cells.size), strict=False):
            if side.any():
                some = pools.take(index[side] - first)
                result[..., side] = measure(some, replicas[side], grid.request, grid.bursts)
        return result


@dataclass(frozen=True)
class Ends:
    """What is known of every pool's count; over and under are `excess` there, or NaN."""

    low: Array  # too few
    over: Array
    high: Array  # enough where `under` is known, else of no interest
    under: Array
    streak: Array  # 1 where the last try was enough, −1 where it was too few

    @classmethod
    def untried(cls, grid: Grid, sides: Sides) -> "Ends":
        """Nothing is known but the load and the limits."""
        limit = grid.request.max_replicas
        most = np.minimum(sides.least * MOST_PER_LOAD, np.inf if limit is None else float(limit))
        high = np.floor(np.where(np.isfinite(most), most, -1.0)) + 1.0
        under = np.full(high.size, np.nan)
        nobody = sides.least == 0.0
        high[nobody], under[nobody] = 0.0, 0.0
        low = np.where(np.isfinite(sides.least), sides.least, 0.0) - 1.0
        return cls(low, np.full(high.size, np.nan), high, under, np.zeros(high.size))

    def tell(self, index: Index, replicas: Array, excess_: Array) -> None:
        """Take in what was found for the pools at these indices, each of them once.

        An end that stays where it is twice counts for half: else a curve keeps it there.
        """
        met = excess_ <= 0.0
        enough, few = index[met], index[~met]
        self.high[enough], self.under[enough] = replicas[met], np.maximum(excess_[met], _FURTHEST)
        self.low[few], self.over[few] = replicas[~met], excess_[~met]
        self.over[enough[self.streak[enough] > 0.0]] *= 0.5
        self.under[few[self.streak[few] < 0.0]] *= 0.5
        self.streak[enough], self.streak[few] = 1.0, -1.0


def first_tries(grid: Grid, sides: Sides, *, least_first: bool = False) -> Ends:
    """Both ends of every pool, after a few counts of each have been tried at once.

    With `least_first` the others wait for the least counts, which often are enough.
    """
    ends = Ends.untried(grid, sides)
    index = np.flatnonzero(ends.low + 1.0 < ends.high)
    factors = _FIRST_TRIES
    if least_first:
        least = sides.least[index]
        ends.tell(index, least, sides.excess(grid, index, least))
        index, factors = np.flatnonzero(ends.low + 1.0 < ends.high), _FIRST_TRIES[1:]
        if not index.size:
            return ends
    tries = np.ceil(sides.least[index] * factors - _ROUNDING)
    tries = np.minimum(np.maximum(tries, ends.low[index] + 1.0), ends.high[index] - 1.0)
    found = sides.excess(grid, np.tile(index, tries.shape[0]), tries.ravel()).reshape(tries.shape)
    for replicas, one in zip(tries[::-1], found[::-1], strict=True):
        met = one <= 0.0
        ends.tell(index[met], replicas[met], one[met])
    for replicas, one in zip(tries, found, strict=True):
        below = (one > 0.0) & (replicas < ends.high[index])
        ends.tell(index[below], replicas[below], one[below])
    return ends


def settle(
    grid: Grid, sides: Sides, ends: Ends, limit: float, *, rounds: int | None = None
) -> tuple[int, Array] | None:
    """The cheapest of the fleets that cost no more than the limit, and the counts of its pools.

    Parameters
    ----------
    grid : Grid
        Of the cells.
    sides : Sides
        Their pools; on a tie the first one is taken.
    ends : Ends
        What is known of them; used up.
    limit : float
        Fleets that cost more are of no interest.
    rounds : int, optional
        After so many the cheapest fleet that is known to be enough will do.

    Returns
    -------
    tuple of int and array of shape (2,), or None
        The place of the cell among `sides.cells`, and its short and long replicas.

    Notes
    -----
    More replicas never raise the share of requests over the target. The logarithm of that share is
    nearly straight, so counts are tried where a line through both ends crosses the allowed share;
    every sixth time what is left is halved.
    """
    round_ = 1
    while True:
        known = np.isfinite(ends.under)
        at_most = np.where(known.reshape(2, -1).all(axis=0), sides.cost(ends.high), np.inf)
        if at_most.size:
            limit = min(limit, float(at_most.min()))
        within = limit * (1.0 + _ROUNDING)
        at_least = sides.cost(ends.low + 1.0)
        alive = at_least <= within
        # what is affordable if the other pool is as small as it may be
        rest = np.concatenate([within - at_least] * 2)
        most = np.floor(ends.low + 1.0 + rest / sides.price + _ROUNDING)
        is_open = ends.low + 1.0 < ends.high
        hopeless = ~is_open & ~known
        alive &= ~hopeless.reshape(2, -1).any(axis=0)
        index = np.flatnonzero(is_open & np.concatenate([alive, alive]))
        if not index.size or (rounds is not None and round_ > rounds):
            break
        replicas = _probes(ends, index, most[index], halve=round_ % _HALVE_EVERY == 0)
        ends.tell(index, replicas, sides.excess(grid, index, replicas))
        round_ += 1
    enough = np.isfinite(ends.under).reshape(2, -1).all(axis=0)
    cost = np.where(enough & (at_least <= within), sides.cost(ends.high), np.inf)
    if not np.isfinite(cost).any():
        return None
    winner = int(np.flatnonzero(cost <= cost.min() * (1.0 + _ROUNDING))[0])
    return winner, ends.high.reshape(2, -1)[:, winner]


def _probes(ends: Ends, index: Index, most: Array, *, halve: bool) -> Array:
    """The counts to try next: no more than `most`, which is infinite without a limit."""
    low, high = ends.low[index], ends.high[index]
    over, under = ends.over[index], ends.under[index]
    tried, met = np.isfinite(over), np.isfinite(under)
    with np.errstate(invalid="ignore"):
        crossing = np.ceil(low + (high - low) * over / (over - under))
    inside = np.ceil(0.5 * (low + high)) if halve else crossing
    ahead = np.where(np.isfinite(most), most, np.where(tried, np.floor(low * _AHEAD), low + 1.0))
    probe = np.where(met, np.where(tried, inside, low + 1.0), ahead)
    return np.asarray(np.clip(probe, low + 1.0, np.minimum(high - 1.0, most)))
