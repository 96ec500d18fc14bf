"""Both pools of many cells, sized for a target that holds for all requests of the fleet together.

Σ (a pool's share of the requests) · (its share over the target) ≤ 1 %. So one pool may miss more
where the other misses less, and which pair of counts is cheapest is no longer a matter of each
pool by itself.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.contest import Sides
from fleetopt.planner.grid import Grid
from fleetopt.planner.pool import MOST_PER_LOAD
from fleetopt.planner.target import TTFT_VIOLATIONS_MAX

Array = NDArray[np.float64]

_ROUNDING: Final = 1e-9
_FIRST_POINTS: Final = 9


def settle_together(
    grid: Grid, sides: Sides, weights: Array, limit: float
) -> tuple[int, Array] | None:
    """The cheapest of the fleets that cost no more than the limit, and the counts of its pools.

    Parameters
    ----------
    grid : Grid
        Of the cells.
    sides : Sides
        Their pools, two in every cell; on a tie the first cell is taken.
    weights : array of shape (2 · cells,)
        Each pool's share of its cell's requests.
    limit : float
        Fleets that cost more are of no interest; may be infinite.

    Returns
    -------
    tuple of int and array of shape (2,), or None
        The place of the cell among `sides.cells`, and its short and long replicas.

    Notes
    -----
    More replicas never raise the share of requests over the target, so the fewest long replicas
    never rise with the short ones. Between two numbers of short replicas a fleet costs at least
    what the first and the long ones of the second cost: an interval that can't be cheaper is
    left, any other one is halved.
    """
    winner: tuple[int, Array] | None = None
    places = np.flatnonzero(_may_hold(grid, sides, weights, limit))
    for place in places[np.argsort(sides.cost(sides.least)[places], kind="stable")].tolist():
        if sides.cost(sides.least)[place] > limit:
            break
        cell = _Cell(grid, sides, weights, place, _most(grid, sides, limit))
        found = _cheapest_pair(cell, limit)
        if found is not None:
            winner, limit = (place, found[1]), found[0] * (1.0 - _ROUNDING)
    return winner


def _may_hold(grid: Grid, sides: Sides, weights: Array, limit: float) -> NDArray[np.bool_]:
    """Cells that meet the target if each pool were as large as it may be at the other's least."""
    count = sides.cells.size
    most = _most(grid, sides, limit)
    open_ = np.asarray((sides.least <= most).reshape(2, -1).all(axis=0))
    index = np.flatnonzero(np.concatenate([open_, open_]))
    over = np.zeros((2, 2 * count))
    over[:, index] = weights[index] * sides.shares(grid, index, most[index])
    total = over[:, :count] + over[:, count:]
    return np.asarray(open_ & (total <= TTFT_VIOLATIONS_MAX).all(axis=0))


def _most(grid: Grid, sides: Sides, limit: float) -> Array:
    """Replicas of each pool that the limit leaves money for; -1 where the least is too dear."""
    least = sides.least
    finite = np.isfinite(least)
    spare = limit * (1.0 + _ROUNDING) - sides.cost(np.where(finite, least, 0.0))
    affordable = np.floor(np.concatenate([spare, spare]) / sides.price + _ROUNDING) + least
    most = np.minimum(affordable, np.where(finite, least, 0.0) * MOST_PER_LOAD)
    if grid.request.max_replicas is not None:
        most = np.minimum(most, float(grid.request.max_replicas))
    return np.where(finite & np.concatenate([spare >= 0.0, spare >= 0.0]), most, -1.0)


@dataclass(frozen=True)
class _Cell:
    """Both pools of one cell, and the most replicas that they may have."""

    grid: Grid
    sides: Sides
    weights: Array
    place: int
    most: Array

    @property
    def pair(self) -> list[int]:
        """Where its short and its long pool are among the sides."""
        return [self.place, self.place + self.sides.cells.size]

    def over(self, side: int, replicas: Array) -> Array:
        """Shares of all requests that a pool keeps waiting with so many, shape (2, replicas)."""
        at = self.pair[side]
        index = np.full(replicas.size, at, dtype=np.intp)
        return np.asarray(self.weights[at] * self.sides.shares(self.grid, index, replicas))

    def cost(self, short: Array, long: Array) -> Array:
        """What the fleet costs with so many."""
        prices = self.sides.price[self.pair]
        return np.asarray(short * prices[0] + long * prices[1] + self.sides.fixed[self.place])

    def fewest_long(self, short: Array) -> Array:
        """Fewest long replicas beside so many short ones; infinite where no number is enough."""
        allowed = TTFT_VIOLATIONS_MAX - self.over(0, short)
        least, most = self.sides.least[self.pair[1]], self.most[self.pair[1]]
        low, high = np.full(short.size, least - 1.0), np.full(short.size, most)
        enough = (self.over(1, high) <= allowed).all(axis=0)
        while (open_ := np.flatnonzero(enough & (high - low > 1.0))).size:
            middle = np.floor(0.5 * (low[open_] + high[open_]))
            met = (self.over(1, middle) <= allowed[:, open_]).all(axis=0)
            high[open_[met]], low[open_[~met]] = middle[met], middle[~met]
        return np.where(enough, high, np.inf)


def _cheapest_pair(cell: _Cell, limit: float) -> tuple[float, Array] | None:
    """The cheapest pair of counts that meets the target within the limit, and what it costs."""
    least, most = cell.sides.least[cell.place], cell.most[cell.place]
    short: Array = np.unique(np.round(np.linspace(least, most, _FIRST_POINTS)).astype(np.float64))
    long = cell.fewest_long(short)
    while True:
        cost = cell.cost(short, long)
        best = int(cost.argmin())
        bar = min(limit, float(cost[best]) * (1.0 - _ROUNDING))
        at_least = cell.cost(short[:-1] + 1.0, long[1:])
        split = np.flatnonzero((np.diff(short) > 1.0) & (at_least <= bar))
        if not split.size:
            break
        middle = np.floor(0.5 * (short[split] + short[split + 1]))
        long = np.insert(long, split + 1, cell.fewest_long(middle))
        short = np.insert(short, split + 1, middle)
    if not cost[best] <= limit:
        return None
    return float(cost[best]), np.array([short[best], long[best]])
