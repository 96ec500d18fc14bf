"""The cheapest fleet: closed-form lower bounds on every cell, then exact checks best-first."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.grid import ONE_POOL, Grid
from fleetopt.planner.pool import least_replicas, size

Array = NDArray[np.float64]
Index = NDArray[np.intp]

_BATCH_GROWTH: Final = 4
_LARGEST_BATCH: Final = 256
_SECONDS_PER_HOUR: Final = 3600.0
_TIE_BREAK: Final = 1e-6
"""Among cells whose whole replicas cost the same, the one with less load goes first."""


@dataclass(frozen=True)
class Fleet:
    """A cell of the grid with its counts and hourly cost.

    In the cell ONE_POOL the one pool is counted as long and `short_replicas` is 0.
    """

    cell: int
    short_replicas: int
    long_replicas: int
    cost_usd_per_h: float


@dataclass(frozen=True)
class Bounds:
    """What every cell costs at least, and its parts; each of shape (cells,)."""

    short_usd: Array
    long_usd: Array
    compression_usd: Array
    order_usd: Array  # the bound with a tie-break added


def bounds(grid: Grid) -> Bounds:
    """Cost of every cell if utilisation and the configured minimum alone sized its pools."""
    request = grid.request
    short_price = request.short_profile.price_usd_per_replica_h
    long_price = request.long_profile.price_usd_per_replica_h
    short = least_replicas(grid.short.load, request) * short_price
    short[ONE_POOL] = 0.0
    long = least_replicas(grid.long.load, request) * long_price
    compression = grid.moved[0] * (request.compression_penalty_usd * _SECONDS_PER_HOUR)
    real = grid.short.load * short_price + grid.long.load * long_price
    order = short + long + compression + _TIE_BREAK * real
    order[ONE_POOL] = long[ONE_POOL]
    return Bounds(short, long, compression, order)


def cheapest(grid: Grid, cells: Index, bound: Bounds | None = None) -> Fleet | None:
    """The cheapest fleet among these cells, or None where none meets the target.

    Cells are looked at in the order of their lower bounds, in growing batches, until no bound
    can beat the best fleet found. Ties go to one pool, then to the smaller load.
    """
    bound = bound or bounds(grid)
    order = bound.order_usd[cells]
    best: Fleet | None = None
    batch = 1
    while True:
        chosen = _lowest(order, batch)
        if best:
            chosen = chosen[order[chosen] < best.cost_usd_per_h]
        if chosen.size == 0:
            return best
        order[chosen] = np.inf
        best = _exact(grid, bound, cells[chosen], best)
        batch = min(batch * _BATCH_GROWTH, _LARGEST_BATCH)


def _lowest(order: Array, batch: int) -> Index:
    if batch == 1:
        chosen = np.atleast_1d(order.argmin()) if order.size else np.zeros(0, dtype=np.intp)
    elif batch < order.size:
        chosen = np.argpartition(order, batch)[:batch]
        chosen = chosen[np.argsort(order[chosen])]
    else:
        chosen = np.argsort(order)
    return chosen[np.isfinite(order[chosen])]


def _exact(grid: Grid, bound: Bounds, cells: Index, best: Fleet | None) -> Fleet | None:
    """Exact sizes of a batch of cells: the long pools first, then what is still affordable."""
    limit = best.cost_usd_per_h if best else np.inf
    request, dispersion = grid.request, grid.dispersion
    short_price = request.short_profile.price_usd_per_replica_h
    long_price = request.long_profile.price_usd_per_replica_h
    rest = limit - bound.compression_usd[cells]
    affordable = _affordable(rest - bound.short_usd[cells], long_price)
    long = size(grid.long_pools(cells), request, dispersion, affordable)
    kept = np.isfinite(long)
    cells, long, rest = cells[kept], long[kept], rest[kept]
    short = np.zeros(cells.size)
    two = np.flatnonzero(cells != ONE_POOL)
    if two.size:
        affordable = _affordable(rest[two] - long[two] * long_price, short_price)
        short[two] = size(grid.short_pools(cells[two]), request, dispersion, affordable)
    cost = short * short_price + long * long_price + bound.compression_usd[cells]
    if cells.size == 0 or not cost.min() < limit:
        return best
    winner = int(cost.argmin())
    return Fleet(int(cells[winner]), int(short[winner]), int(long[winner]), float(cost[winner]))


def _affordable(budget_usd: Array, price_usd: float) -> Array:
    return np.floor(budget_usd / price_usd + 1e-9)
