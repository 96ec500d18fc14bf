"""Where a fleet may be cut into pools, what each pool between two cuts costs, and at least costs.

A cut is a boundary B and a γ: requests up to B belong below it, those up to γB that can be
compressed too. Cut 0 is below all requests, the last one above them, at C_l. A pool between two
cuts has the context window of the upper one. Bands don't overlap: γB of the lower cut is at most
B of the upper one.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.bounds import least_seconds, lower_bounds
from fleetopt.planner.cost import SECONDS_PER_HOUR
from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.grid import ONE_POOL, Grid, build
from fleetopt.planner.moments import COUNT
from fleetopt.planner.pool import Pools, least_replicas, size
from fleetopt.planner.request import PlanRequest
from fleetopt.planner.workload import Workload

Array = NDArray[np.float64]
Index = NDArray[np.intp]

_BATCH: Final = 512
"""Pools that are sized together: more no longer fit into a processor's cache."""

_ENDLESS: Final = 1e300
"""A load of more has no replicas: the engine holds no context of this window."""

_ROUNDING: Final = 1e-9
_TIE: Final = 1e-9
"""Among fleets whose whole replicas cost the same, the one with the least load is preferred."""


@dataclass(frozen=True)
class SizedPool:
    """A pool between two cuts: the engine that serves it for the least, and how many."""

    grid: Grid
    pools: Pools  # a batch of one
    replicas: int
    cost_per_h: float  # in the unit minimised


@dataclass(frozen=True)
class Cuts:
    """All cuts, and the engines to choose from; a grid has one engine for both its pools."""

    request: PlanRequest
    below: tuple[Grid, ...]  # for all pools but the last
    last: tuple[Grid, ...]
    cells: Index  # of every cut but the last one, lower boundaries first

    @property
    def end(self) -> int:
        """The last cut."""
        return self.cells.size

    @cached_property
    def rows(self) -> Index:
        """The row of each cut's boundary; that of the last one is above all rows."""
        grid = self.last[0]
        return np.append(self.cells % grid.rows, grid.rows)

    @cached_property
    def compressed_per_s(self) -> Array:
        """Requests that are compressed to fit under each cut."""
        return np.append(self.last[0].moved[COUNT, self.cells], 0.0)

    @cached_property
    def compression(self) -> Array:
        """Price of these in an hour, in the unit minimised."""
        return self.compressed_per_s * (self.request.compression_penalty * SECONDS_PER_HOUR)

    def least(self) -> Array:
        """What the pool between every two cuts costs at least, shape (cuts, cuts).

        Infinite where the upper cut is not above the lower one's band, and where the engine
        can't hold a single context.
        """
        lower = np.arange(self.end)[:, None]
        tops = self.rows[:-1] + self.cells // self.last[0].rows
        least = np.full((self.end + 1, self.end + 1), np.inf)
        for grids, upper in ((self.below, np.arange(self.end)), (self.last, np.array([self.end]))):
            is_pool = (tops[:, None] <= self.rows[upper]) & (
                self.rows[:-1, None] < self.rows[upper]
            )
            for grid in grids:
                cost = np.where(is_pool, self._least(grid, lower, upper), np.inf)
                least[:-1, upper] = np.minimum(least[:-1, upper], cost)
        return least

    def _least(self, grid: Grid, lower: Index, upper: Index) -> Array:
        """The least costs of the pools between these cuts on one engine."""
        by_lower, by_upper = self._least_loads[grid.request.long_profile]
        load = np.maximum(by_lower[self.rows[upper], lower] + by_upper[upper], 0.0)
        cost = _cost(np.minimum(load, _ENDLESS), grid) + self.compression[upper]
        return np.where(load < _ENDLESS, cost, np.inf)

    @cached_property
    def _least_loads(self) -> dict[EngineProfile, tuple[Array, Array]]:
        """For each engine the two parts of every pool's least load.

        All work above the lower cut at the speed of the upper one's context, shape (rows + 1,
        cuts), and what is above the upper cut, to be taken off, shape (cuts,).
        """
        return {
            grid.request.long_profile: self._least_load(grid) for grid in (*self.below, *self.last)
        }

    def _least_load(self, grid: Grid) -> tuple[Array, Array]:
        engine = grid.request.long_profile
        contexts = np.append(grid.boundaries, float(self.request.long_context_tokens))
        seconds = least_seconds(contexts, engine, self.request)
        above = grid.long_sums(self.cells).per_s
        all_work = above[:, :1]
        below = np.append(grid.short_sums(self.cells).per_s, all_work, axis=1)
        by_upper = (seconds[:, self.rows] * (below - all_work)).sum(axis=0)
        holds = [engine.slots_reserved(int(tokens)) >= 1 for tokens in contexts]
        by_upper[~np.array(holds)[self.rows]] = np.inf
        return seconds.T @ above, by_upper

    def price(self, lower: Index, upper: Index, limit: Array) -> Array:
        """What the pools between these cuts cost; infinite above the limit or without target."""
        cost = np.full(lower.size, np.inf)
        is_last = upper == self.end
        for grids, chosen in ((self.below, ~is_last), (self.last, is_last)):
            index = np.flatnonzero(chosen)
            for grid in grids if index.size else ():
                most = np.minimum(limit[index], cost[index])
                could = self._least(grid, lower[index], upper[index]) <= most * (1.0 + _ROUNDING)
                at, most = index[could], most[could]
                exact = self._in_batches(grid, lower[at], upper[at], most)
                cost[at] = np.minimum(cost[at], exact)
        return cost

    def _in_batches(self, grid: Grid, lower: Index, upper: Index, limit: Array) -> Array:
        """Exact costs; the pools of a batch lie close to each other, which saves time."""
        cost = np.empty(lower.size)
        order = np.lexsort((self.rows[upper], self.rows[lower]))
        for start in range(0, order.size, _BATCH):
            one = order[start : start + _BATCH]
            cost[one] = self._exact(grid, lower[one], upper[one], limit[one])
        return cost

    def _exact(self, grid: Grid, lower: Index, upper: Index, limit: Array) -> Array:
        pools, fixed = self._pools(grid, lower, upper), self.compression[upper]
        load, rate = pools.load, grid.request.long_rate
        by_load = np.where(np.isfinite(load), load, 0.0) * rate.per_load
        most = np.floor((limit - fixed - by_load) / rate.per_replica + _ROUNDING)
        replicas = size(pools, self.request, grid.bursts, most)
        return np.where(np.isfinite(replicas), _cost(load, grid, replicas) + fixed, np.inf)

    def _pools(self, grid: Grid, lower: Index, upper: Index) -> Pools:
        """The pools between these cuts on one engine: all the last one, or none."""
        cells = self.cells[lower]
        if upper[0] == self.end:
            return grid.long_pools(cells)
        return grid.pools_between(cells, self.cells[upper])

    def sized(self, lower: int, upper: int) -> SizedPool:
        """The pool between two cuts that a fleet was found with."""
        at = np.array([lower], dtype=np.intp), np.array([upper], dtype=np.intp)
        grids = self.last if upper == self.end else self.below
        nothing = np.full(1, np.inf)
        costs = [float(self._exact(grid, *at, nothing)[0]) for grid in grids]
        grid = grids[int(np.argmin(costs))]
        pools = self._pools(grid, *at)
        replicas = int(size(pools, self.request, grid.bursts)[0])
        cost = grid.request.long_rate.of(replicas, float(pools.load[0]))
        return SizedPool(grid, pools, replicas, cost)


def _cost(load: Array, grid: Grid, replicas: Array | None = None) -> Array:
    """What so many replicas cost, by default as few as the load asks for; compression left out."""
    rate = grid.request.long_rate
    count = least_replicas(load, grid.request) if replicas is None else replicas
    return np.asarray(count * rate.per_replica + load * (rate.per_load + _TIE * rate.per_replica))


def cuts(
    workload: Workload,
    request: PlanRequest,
    below: tuple[EngineProfile, ...],
    last: tuple[EngineProfile, ...],
) -> Cuts:
    """Cuts at all bin edges below C_l and all γ = 2^(j/8) that compress more than the one before.

    Parameters
    ----------
    workload : Workload
        With requests in it.
    request : PlanRequest
        Limits, target and prices; its own engines play no part.
    below, last : tuple of EngineProfile
        Engines to choose from for each pool but the last, and for the last.
    """
    made: dict[EngineProfile, Grid] = {}
    for engine in (*below, *last):
        if engine not in made:
            of = replace(request, short_profile=engine, long_profile=engine)
            made[engine] = build(workload, of)
    grid = made[last[0]]
    compresses = np.isfinite(lower_bounds(grid).total[grid.cells])
    cells = grid.cells[compresses]
    cells = cells[np.argsort(cells % grid.rows, kind="stable")]
    return Cuts(
        request,
        tuple(made[engine] for engine in below),
        tuple(made[engine] for engine in last),
        np.append(np.array([ONE_POOL], dtype=np.intp), cells),
    )
