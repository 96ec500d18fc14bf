"""The cheapest fleet: closed-form lower bounds on every cell, then exact checks best-first."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.grid import Grid
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
    """One pool (`cell` None), or a cell of the grid, with its counts and hourly cost."""

    cell: int | None
    short_replicas: int
    long_replicas: int
    cost_usd_per_h: float


@dataclass(frozen=True)
class Bounds:
    """What every cell costs at least, and its parts; each of shape (cells,)."""

    short_usd: Array
    long_usd: Array
    compression_usd: Array
    real_usd: Array  # without rounding to whole replicas: no bound, a tie-break

    @property
    def total_usd(self) -> Array:
        """Lower bound on the hourly cost."""
        return self.short_usd + self.long_usd + self.compression_usd


def bounds(grid: Grid) -> Bounds:
    """Cost of every cell if utilisation and the configured minimum alone sized its pools."""
    request = grid.request
    short_price = request.short_profile.price_usd_per_replica_h
    long_price = request.long_profile.price_usd_per_replica_h
    compression = grid.moved[:, 0] * (request.compression_penalty_usd * _SECONDS_PER_HOUR)
    return Bounds(
        least_replicas(grid.short.load, request) * short_price,
        least_replicas(grid.long.load, request) * long_price,
        compression,
        grid.short.load * short_price + grid.long.load * long_price + compression,
    )


def best_one_pool(grid: Grid, below_usd: float = np.inf) -> Fleet | None:
    """The single pool, if it meets the target for less than `below_usd`."""
    price = grid.request.long_profile.price_usd_per_replica_h
    replicas = float(size(grid.one, grid.request, grid.dispersion, _affordable(below_usd, price))[0])
    return Fleet(None, int(replicas), 0, replicas * price) if np.isfinite(replicas) else None


def best_two_pools(grid: Grid, cells: Index, incumbent: Fleet | None = None) -> Fleet | None:
    """The cheapest of these cells, or the incumbent where none is cheaper.

    Cells are looked at in the order of their lower bounds, in growing batches, until no bound
    can beat the best fleet found.
    """
    bound = bounds(grid)
    total = bound.total_usd[cells]
    order = total + _TIE_BREAK * bound.real_usd[cells]
    best, batch = incumbent, 1
    while True:
        limit = best.cost_usd_per_h if best else np.inf
        chosen = _lowest(order, batch)
        chosen = chosen[total[chosen] < limit]
        if chosen.size == 0:
            return best
        order[chosen] = np.inf
        best = _cheapest(grid, bound, cells[chosen], best)
        batch = min(batch * _BATCH_GROWTH, _LARGEST_BATCH)


def _lowest(order: Array, batch: int) -> Index:
    if batch == 1 or batch >= order.size:
        chosen = np.atleast_1d(np.argmin(order)) if batch == 1 else np.argsort(order)
    else:
        chosen = np.argpartition(order, batch)[:batch]
        chosen = chosen[np.argsort(order[chosen])]
    return chosen[np.isfinite(order[chosen])]


def _cheapest(grid: Grid, bound: Bounds, cells: Index, best: Fleet | None) -> Fleet | None:
    """Exact sizes of a batch of cells: the long pools first, then what is still affordable."""
    limit = best.cost_usd_per_h if best else np.inf
    short_price = grid.request.short_profile.price_usd_per_replica_h
    long_price = grid.request.long_profile.price_usd_per_replica_h
    rest = limit - bound.compression_usd[cells]
    long = size(
        grid.long_pools(cells),
        grid.request,
        grid.dispersion,
        _affordable(rest - bound.short_usd[cells], long_price),
    )
    kept = np.isfinite(long)
    cells, long, rest = cells[kept], long[kept], rest[kept]
    if cells.size == 0:
        return best
    short = size(
        grid.short_pools(cells),
        grid.request,
        grid.dispersion,
        _affordable(rest - long * long_price, short_price),
    )
    cost = short * short_price + long * long_price + bound.compression_usd[cells]
    winner = int(np.argmin(cost))
    if not cost[winner] < limit:
        return best
    return Fleet(
        int(cells[winner]), int(short[winner]), int(long[winner]), float(cost[winner])
    )


def _affordable(budget_usd: Array | float, price_usd: float) -> Array:
    return np.atleast_1d(np.floor(np.asarray(budget_usd) / price_usd + 1e-9))
