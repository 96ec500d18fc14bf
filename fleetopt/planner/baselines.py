"""The fleets that a plan is compared with, sized by the same model for the same target."""

from dataclasses import replace

import numpy as np

from fleetopt.planner.bounds import Bounds, lower_bounds
from fleetopt.planner.grid import ONE_POOL, Grid, Index
from fleetopt.planner.outcome import Baseline, BaselineName
from fleetopt.planner.pool import least_replicas, size, violation_share
from fleetopt.planner.request import Admission, PlanRequest
from fleetopt.planner.search import Fleet, cheapest
from fleetopt.planner.target import TTFT_VIOLATIONS_MAX

_NOT_REACHED = "no number of replicas meets the target"


def baselines(grid: Grid, rows: Index, chosen: Fleet) -> tuple[Baseline, ...]:
    """All five, in the order of their names; `rows` are the boundaries that are allowed."""
    bound = lower_bounds(grid)
    uncompressed = cheapest(grid, rows, bound)
    retrofitted = _retrofit(grid, bound, uncompressed) if uncompressed else None
    found = (
        (BaselineName.ONE_POOL_RESERVED, _one_pool(grid, Admission.RESERVED)),
        (BaselineName.ONE_POOL_STATISTICAL, _one_pool(grid, Admission.STATISTICAL)),
        (BaselineName.TWO_POOLS_NO_COMPRESSION, uncompressed),
        (BaselineName.COMPRESSION_RETROFITTED, retrofitted),
        (BaselineName.CO_DESIGNED, chosen),
    )
    cost = chosen.cost_usd_per_h
    return tuple(_baseline(name, grid, fleet, cost) for name, fleet in found)


def _one_pool(grid: Grid, admission: Admission) -> Fleet | None:
    """The single pool under either admission; the grid's sums don't depend on it."""
    on = replace(grid, request=replace(grid.request, admission=admission))
    pools = on.long_pools(np.array([ONE_POOL], dtype=np.intp))
    count = float(size(pools, on.request, on.dispersion)[0])
    if not np.isfinite(count):
        return None
    return Fleet(ONE_POOL, 0, int(count), count * pools.engine.price_usd_per_replica_h)


def _retrofit(grid: Grid, bound: Bounds, fleet: Fleet) -> Fleet:
    """Compression switched on in a fleet that was bought without it.

    B and the short pool stay as they are, so γ can rise only as far as the short pool still
    holds its utilisation and its target; long replicas that fall empty are given back.
    """
    request: PlanRequest = grid.request
    row = fleet.cell % grid.rows
    steps = np.arange(min(grid.steps, grid.rows - row + 1))
    cells = steps * grid.rows + row
    count = np.full(cells.size, float(fleet.short_replicas))
    shorts = grid.short_pools(cells)
    target = request.slo_ttft_p99
    over = violation_share(shorts, count, request, grid.dispersion, target)
    holds = (least_replicas(shorts.load, request) <= count) & (over <= TTFT_VIOLATIONS_MAX)
    holds[0] = True
    cells, count = cells[holds], count[holds]
    at_most = np.full(cells.size, float(fleet.long_replicas))
    long = size(grid.long_pools(cells), request, grid.dispersion, at_most)
    long[0] = fleet.long_replicas
    cost = (
        count * request.short_profile.price_usd_per_replica_h
        + long * request.long_profile.price_usd_per_replica_h
        + bound.compression_usd[cells]
    )
    best = int(cost.argmin())
    return Fleet(int(cells[best]), fleet.short_replicas, int(long[best]), float(cost[best]))


def _baseline(
    name: BaselineName, grid: Grid, fleet: Fleet | None, plan_cost_usd_per_h: float
) -> Baseline:
    request = grid.request
    context = request.long_context_tokens
    if fleet is None:
        return Baseline(name, context, 1.0, 0, 0, 0, 0.0, None, feasible=False, reason=_NOT_REACHED)
    boundary, gamma, short, long = shape(grid, fleet)
    gpus = (
        fleet.short_replicas * request.short_profile.gpus_per_replica
        + fleet.long_replicas * request.long_profile.gpus_per_replica
    )
    saving = 1.0 - plan_cost_usd_per_h / fleet.cost_usd_per_h
    return Baseline(name, boundary, gamma, short, long, gpus, fleet.cost_usd_per_h, saving)


def shape(grid: Grid, fleet: Fleet) -> tuple[int, float, int, int]:
    """B, γ and both counts as they are reported: one pool is short, with B = C_l."""
    if fleet.cell == ONE_POOL:
        return grid.request.long_context_tokens, 1.0, fleet.long_replicas, 0
    boundary, gamma = grid.boundary_and_gamma(fleet.cell)
    return boundary, gamma, fleet.short_replicas, fleet.long_replicas
