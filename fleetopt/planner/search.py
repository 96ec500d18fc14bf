"""The cheapest fleet: lower bounds on every cell in closed form, then exact checks best-first."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.bounds import Bounds, lower_bounds
from fleetopt.planner.contest import Ends, Sides, first_tries, settle
from fleetopt.planner.fleet_scope import settle_together
from fleetopt.planner.grid import ONE_POOL, Grid
from fleetopt.planner.loose import surely_meets
from fleetopt.planner.pool import Sums, least_replicas
from fleetopt.planner.request import SloScope
from fleetopt.planner.service import REQUESTS

Array = NDArray[np.float64]
Index = NDArray[np.intp]

_FIRST_LOOK: Final = 32
_LOOK: Final = 128
_MANY: Final = 48
_PARTS: Final = 8
_SCOUT_ROUNDS: Final = 2
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
    """The cheapest fleet among these cells, or None where none meets the target."""
    bound = bound or lower_bounds(grid)
    apart = _cheapest_apart(grid, cells, bound)
    if grid.request.slo_scope is SloScope.POOL:
        return apart
    return _cheapest_together(grid, cells[cells != ONE_POOL], bound, apart) or apart


def _cheapest_apart(grid: Grid, cells: Index, bound: Bounds) -> Fleet | None:
    """The cheapest fleet each of whose pools meets the target by itself.

    Where utilisation decides, the cell with the lowest bound is shown to be enough. Else a few
    cells that differ are sized first, so that few of the others are left to be looked at. Ties
    go to one pool, and else mostly to the smaller load.
    """
    order = bound.total[cells]
    nearest = _lowest(order, _FIRST_LOOK)
    if nearest.size == 0:
        return None
    found = _candidates(grid, bound, cells[nearest])
    best = _first(grid, found)
    if best:
        order[nearest[found.total >= best.cost_per_h]] = np.inf
    if best is None or np.count_nonzero(order < best.cost_per_h) > _MANY:
        scouts = _candidates(grid, bound, _scouts(grid, cells, order))
        best = _settled(grid, scouts, best, rounds=_SCOUT_ROUNDS) or best
    while order.size:
        if best:
            cheaper = order < best.cost_per_h
            cells, order = cells[cheaper], order[cheaper]
        nearest = _lowest(order, _LOOK)
        if nearest.size == 0:
            break
        best = _settled(grid, _candidates(grid, bound, cells[nearest]), best) or best
        order[nearest] = np.inf
    return best


def _cheapest_together(grid: Grid, cells: Index, bound: Bounds, best: Fleet | None) -> Fleet | None:
    """The cheapest fleet of two pools that meet the target together, if it is cheaper."""
    order, found = bound.total[cells].copy(), None
    while True:
        limit = best.cost_per_h if best else np.inf
        order[order >= limit] = np.inf
        nearest = _lowest(order, _FIRST_LOOK)
        if nearest.size == 0:
            return found
        order[nearest] = np.inf
        some = _candidates(grid, bound, cells[nearest])
        some = some.take(np.flatnonzero(some.total < limit * (1.0 - _ROUNDING)))
        if not some.cells.size:
            continue
        requests = np.stack([some.short.per_s[REQUESTS], some.long.per_s[REQUESTS]])
        weights = (requests / np.maximum(requests.sum(axis=0), 1e-300)).ravel()
        sides = Sides.of(grid, some.cells, some.short, some.long, some.fixed)
        settled = settle_together(grid, sides, weights, limit * (1.0 - _ROUNDING))
        if settled is not None:
            best = found = _fleet(grid, some, *settled)


def _scouts(grid: Grid, cells: Index, order: Array) -> Index:
    """One pool, and of every part of the boundaries the cell with the lowest bound."""
    part = (cells % grid.rows + _PARTS - 1) * _PARTS // (grid.rows + _PARTS)
    part[cells == ONE_POOL] = -1
    by_part = np.lexsort((order, part))
    first = by_part[np.flatnonzero(np.diff(part[by_part], prepend=-2))]
    return cells[first[np.isfinite(order[first])]]


def _lowest(order: Array, count: int) -> Index:
    chosen = np.argpartition(order, count)[:count] if count < order.size else np.arange(order.size)
    return chosen[np.isfinite(order[chosen])]


@dataclass(frozen=True)
class _Candidates:
    """Cells with their exact load, and what that costs at least."""

    cells: Index
    short: Sums
    long: Sums
    total: Array
    fixed: Array  # whatever the replicas: compression, and power that follows the load
    load_cost: Array  # before rounding to whole replicas

    def take(self, index: Index) -> "_Candidates":
        return _Candidates(
            self.cells[index],
            self.short.take(index),
            self.long.take(index),
            self.total[index],
            self.fixed[index],
            self.load_cost[index],
        )


def _first(grid: Grid, found: _Candidates) -> Fleet | None:
    """A fleet of the cell that is cheapest by load: mostly what load and minimum ask for."""
    request = grid.request
    first = int((found.total + _TIE_BREAK * found.load_cost).argmin())
    cell, cost = int(found.cells[first]), float(found.total[first])
    if not math.isfinite(cost):
        return None
    found = found.take(np.array([first]))
    replicas = least_replicas(np.append(found.short.load, found.long.load), request)
    if cell == ONE_POOL:
        replicas[0] = 0.0
    limit = request.max_replicas
    if (limit is None or replicas.max() <= limit) and _loosely(grid, found, replicas):
        return Fleet(cell, int(replicas[0]), int(replicas[1]), cost)
    return _settled(grid, found, None, rounds=0)


def _loosely(grid: Grid, found: _Candidates, replicas: Array) -> bool:
    """Whether so many in one cell surely meet the target, as a shortcut shows."""
    request, cell = grid.request, int(found.cells[0])
    of_short, prompts = grid.prompt_bounds(found.cells)
    sums, rows, replicas = found.long, [-1], replicas[1:]
    if cell != ONE_POOL:
        if request.short_profile is not request.long_profile:
            return False
        sums, rows = found.short.with_(found.long), [cell % grid.rows, -1]
        prompts = np.concatenate([of_short, prompts], axis=1)
        replicas = least_replicas(sums.load, request)
    longest = _POINT_OVER_LONGEST * grid.boundaries[rows]
    engine = request.long_profile
    return surely_meets(sums, prompts, longest, replicas, engine, request, grid.bursts)


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
    short_cost = least_replicas(short.load, request) * short_price * two
    long_cost = least_replicas(long.load, request) * long_price
    load_cost = (short.load * short_price + long.load * long_price) * two
    return _Candidates(cells, short, long, short_cost + long_cost + fixed, fixed, load_cost)


def _settled(
    grid: Grid, found: _Candidates, best: Fleet | None, *, rounds: int | None = None
) -> Fleet | None:
    """The cheapest of these cells by exact sizes, if it is cheaper than the best so far."""
    limit = best.cost_per_h * (1.0 - _ROUNDING) if best else np.inf
    cheaper = np.flatnonzero(found.total < limit)
    if cheaper.size == 0:
        return None
    found = found.take(cheaper[np.argsort(found.load_cost[cheaper], kind="stable")])
    sides = Sides.of(grid, found.cells, found.short, found.long, found.fixed)
    if rounds is None:
        ends = Ends.untried(grid, sides)
    else:
        ends = first_tries(grid, sides, least_first=rounds == 0)
    settled = settle(grid, sides, ends, limit, rounds=rounds)
    if settled is None:
        return None
    return _fleet(grid, found, *settled)


def _fleet(grid: Grid, found: _Candidates, at: int, counts: Array) -> Fleet:
    short, long = counts
    prices = grid.request.short_rate.per_replica, grid.request.long_rate.per_replica
    cost = float(short * prices[0] + long * prices[1] + found.fixed[at])
    return Fleet(int(found.cells[at]), int(short), int(long), cost)
