"""The cheapest fleet: lower bounds on every cell in closed form, then exact checks best-first."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.bounds import Bounds, lower_bounds
from fleetopt.planner.grid import ONE_POOL, Grid
from fleetopt.planner.loose import surely_meets
from fleetopt.planner.pool import Sums, least_replicas, size

Array = NDArray[np.float64]
Index = NDArray[np.intp]

_FIRST_LOOK: Final = 32
_LARGEST_LOOK: Final = 512
_FIRST_BATCH: Final = 1
_GROWTH: Final = 8
_ROUNDING: Final = 1e-9
_POINT_OVER_LONGEST: Final = (1.0 + math.sqrt(2.0)) / 2.0
"""Mean + deviation of any set of prompts is at most so many times the longest of them."""

_TIE_BREAK: Final = 1e-6
"""Among cells whose whole replicas cost the same, one pool goes first, then the smallest load."""


@dataclass(frozen=True)
class Fleet:
    """A cell of the grid with its counts, and what it costs in an hour in the unit minimised.

    In the cell ONE_POOL the one pool is counted as long and `short_replicas` is 0.
    """

    cell: int
    short_replicas: int
    long_replicas: int
    cost_per_h: float


def cells_at(grid: Grid, boundary_tokens: int | None) -> Index:
    """Cells of a boundary, which is the long context for one pool; of all, one pool first."""
    one = np.array([ONE_POOL], dtype=np.intp)
    if boundary_tokens is None:
        return np.concatenate([one, grid.cells])
    if boundary_tokens == grid.request.long_context_tokens:
        return one
    row = grid.row_of(boundary_tokens)
    return row + grid.rows * np.arange(min(grid.steps, grid.rows - row + 1), dtype=np.intp)


def cheapest(grid: Grid, cells: Index, bound: Bounds | None = None) -> Fleet | None:
    """The cheapest fleet among these cells, or None where none meets the target.

    Cells are looked at in the order of their lower bounds, a growing number at a time, until
    no bound can beat the best fleet found. Ties go to one pool, then to the smaller load.
    """
    bound = bound or lower_bounds(grid)
    order = bound.total[cells]
    best: Fleet | None = None
    look = _FIRST_LOOK
    while order.size:
        if best:
            if order.min() >= best.cost_per_h:
                break
            cheaper = order < best.cost_per_h
            cells, order = cells[cheaper], order[cheaper]
        nearest = _lowest(order, look)
        if nearest.size == 0:
            break
        best = _look(grid, bound, cells[np.sort(nearest)], best)
        order[nearest] = np.inf
        look = min(look * _GROWTH, _LARGEST_LOOK)
    return best


def _lowest(order: Array, count: int) -> Index:
    chosen = np.argpartition(order, count)[:count] if count < order.size else np.arange(order.size)
    return chosen[np.isfinite(order[chosen])]


@dataclass(frozen=True)
class _Candidates:
    """Cells with their exact load, ordered by what that load costs at least."""

    cells: Index
    short: Sums
    long: Sums
    short_cost: Array
    long_cost: Array
    fixed_cost: Array  # whatever the replicas: compression, and power that follows the load
    load_cost: Array  # before rounding to whole replicas

    def take(self, index: Index) -> "_Candidates":
        return _Candidates(
            self.cells[index],
            self.short.take(index),
            self.long.take(index),
            self.short_cost[index],
            self.long_cost[index],
            self.fixed_cost[index],
            self.load_cost[index],
        )


def _look(grid: Grid, bound: Bounds, cells: Index, best: Fleet | None) -> Fleet | None:
    """The cheapest of these cells by exact sizes, or the best so far."""
    found = _candidates(grid, bound, cells)
    total = found.short_cost + found.long_cost + found.fixed_cost
    order = np.argsort(total + _TIE_BREAK * found.load_cost, kind="stable")
    total = total[order]
    done, batch = 0, _FIRST_BATCH
    if best is None and order.size and np.isfinite(total[0]):
        best = _loosely(grid, found.take(order[:1]))
        done = 1 if best else 0
    while done < order.size:
        limit = best.cost_per_h if best else np.inf
        stop = min(done + batch, int(np.searchsorted(total, limit)))
        if stop <= done or not np.isfinite(total[done]):
            break
        best = _exact(grid, found.take(order[done:stop]), best)
        done, batch = stop, batch * _GROWTH
    return best


def _loosely(grid: Grid, found: _Candidates) -> Fleet | None:
    """The fleet that load and minimum ask for in one cell, if that surely meets the target."""
    request, cell = grid.request, int(found.cells[0])
    sums, rows = found.long, [-1]
    if cell != ONE_POOL:
        if request.short_profile is not request.long_profile:
            return None
        sums, rows = found.short.with_(found.long), [cell % grid.rows, -1]
    replicas = least_replicas(sums.load, request)
    if request.max_replicas is not None and replicas.max() > request.max_replicas:
        return None
    longest = _POINT_OVER_LONGEST * grid.boundaries[rows]
    engine = request.long_profile
    if not surely_meets(sums, longest, replicas, engine, request, grid.bursts):
        return None
    cost = float(found.short_cost[0] + found.long_cost[0] + found.fixed_cost[0])
    short = 0 if cell == ONE_POOL else int(replicas[0])
    return Fleet(cell, short, int(replicas[-1]), cost)


def _candidates(grid: Grid, bound: Bounds, cells: Index) -> _Candidates:
    request = grid.request
    short, long = grid.both_sums(cells)
    short_rate, long_rate = request.short_rate, request.long_rate
    short_price, long_price = short_rate.per_replica, long_rate.per_replica
    two = cells != ONE_POOL
    fixed = bound.compression[cells]
    if short_rate.per_load:
        fixed += short.load * short_rate.per_load * two
    if long_rate.per_load:
        fixed += long.load * long_rate.per_load
    return _Candidates(
        cells,
        short,
        long,
        least_replicas(short.load, request) * short_price * two,
        least_replicas(long.load, request) * long_price,
        fixed,
        (short.load * short_price + long.load * long_price) * two,
    )


def _exact(grid: Grid, found: _Candidates, best: Fleet | None) -> Fleet | None:
    """The cheapest of a batch of candidates by exact sizes, or the best so far."""
    request = grid.request
    limit = best.cost_per_h if best else np.inf
    short_price, long_price = request.short_rate.per_replica, request.long_rate.per_replica
    rest = limit - found.fixed_cost
    long_most = np.floor((rest - found.short_cost) / long_price + _ROUNDING)
    short_most = np.floor((rest - found.long_cost) / short_price + _ROUNDING)
    short, long = _sizes(grid, found, short_most, long_most)
    cost = short * short_price + long * long_price + found.fixed_cost
    winner = int(cost.argmin())
    if not cost[winner] < limit:
        return best
    cell = int(found.cells[winner])
    return Fleet(cell, int(short[winner]), int(long[winner]), float(cost[winner]))


def _sizes(
    grid: Grid, found: _Candidates, short_most: Array, long_most: Array
) -> tuple[Array, Array]:
    """Fewest replicas of both pools of each cell, infinite above what is affordable."""
    request, bursts, cells = grid.request, grid.bursts, found.cells
    two = cells != ONE_POOL
    if request.short_profile is request.long_profile:
        both = grid.both_pools(cells, found.short, found.long)
        counts = size(both, request, bursts, np.concatenate([short_most, long_most]))
        return np.where(two, counts[: cells.size], 0.0), counts[cells.size :]
    long = size(grid.long_pools(cells, found.long), request, bursts, long_most)
    short = np.zeros(cells.size)
    needed = np.flatnonzero(two & np.isfinite(long))
    if needed.size:
        shorts = grid.short_pools(cells[needed], found.short.take(needed))
        short[needed] = size(shorts, request, bursts, short_most[needed])
    return short, long
