"""The fleets that a plan is compared with, sized by the same model for the same target."""

from dataclasses import replace

import numpy as np

from fleetopt.planner.bounds import Bounds
from fleetopt.planner.cost import gpu_cost
from fleetopt.planner.grid import ONE_POOL, Grid, Index
from fleetopt.planner.moments import COUNT
from fleetopt.planner.outcome import Baseline, BaselineName
from fleetopt.planner.pool import further_shares, least_replicas, size, violation_share
from fleetopt.planner.request import Admission, PlanRequest
from fleetopt.planner.search import Fleet, cheapest
from fleetopt.planner.target import TTFT_VIOLATIONS_MAX

_NOT_REACHED = "no number of replicas meets the target"


def baselines(grid: Grid, bound: Bounds, rows: Index, chosen: Fleet) -> tuple[Baseline, ...]:
    """All five, in the order of their names; `rows` are the boundaries that are allowed."""
    uncompressed = cheapest(grid, rows, bound)
    retrofitted = _retrofit(grid, bound, uncompressed) if uncompressed else None
    reserved, statistical = (
        _under(grid, one) for one in (Admission.RESERVED, Admission.STATISTICAL)
    )
    found = (
        (BaselineName.ONE_POOL_RESERVED, reserved, _one_pool(reserved)),
        (BaselineName.ONE_POOL_STATISTICAL, statistical, _one_pool(statistical)),
        (BaselineName.TWO_POOLS_NO_COMPRESSION, grid, uncompressed),
        (BaselineName.COMPRESSION_RETROFITTED, grid, retrofitted),
        (BaselineName.CO_DESIGNED, grid, chosen),
    )
    cost = chosen.cost_per_h
    return tuple(_baseline(name, on, fleet, cost) for name, on, fleet in found)


def _under(grid: Grid, admission: Admission) -> Grid:
    """The grid under either admission; its sums don't depend on it."""
    if admission is grid.request.admission:
        return grid
    return replace(grid, request=replace(grid.request, admission=admission))


def _one_pool(grid: Grid) -> Fleet | None:
    pools = grid.long_pools(np.array([ONE_POOL], dtype=np.intp))
    count = float(size(pools, grid.request, grid.bursts)[0])
    if not np.isfinite(count):
        return None
    cost = grid.request.long_rate.of(count, float(pools.load[0]))
    return Fleet(ONE_POOL, 0, int(count), cost)


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
    over = violation_share(shorts, count, request, grid.bursts, target)
    if request.has_further_targets:
        over = np.maximum(over, np.maximum(*further_shares(shorts, count, request, grid.bursts)))
    holds = (least_replicas(shorts.load, request) <= count) & (over <= TTFT_VIOLATIONS_MAX)
    holds[0] = True
    cells, count = cells[holds], count[holds]
    at_most = np.full(cells.size, float(fleet.long_replicas))
    longs = grid.long_pools(cells)
    long = size(longs, request, grid.bursts, at_most)
    long[0] = fleet.long_replicas
    short_rate, long_rate = request.short_rate, request.long_rate
    cost = (
        count * short_rate.per_replica
        + shorts.load[holds] * short_rate.per_load
        + long * long_rate.per_replica
        + longs.load * long_rate.per_load
        + bound.compression[cells]
    )
    best = int(cost.argmin())
    return Fleet(int(cells[best]), fleet.short_replicas, int(long[best]), float(cost[best]))


def _baseline(
    name: BaselineName, grid: Grid, fleet: Fleet | None, plan_cost_per_h: float
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
    saving = 1.0 - plan_cost_per_h / fleet.cost_per_h
    cell = np.array([fleet.cell], dtype=np.intp)
    paid = gpu_cost(request.long_profile, fleet.long_replicas, float(grid.long_sums(cell).load[0]))
    if fleet.cell != ONE_POOL:
        paid += gpu_cost(
            request.short_profile, fleet.short_replicas, float(grid.short_sums(cell).load[0])
        )
    usd_per_h = paid.usd_per_h + request.compression_usd_per_h(float(grid.moved[COUNT, fleet.cell]))
    return Baseline(
        name,
        boundary,
        gamma,
        short,
        long,
        gpus,
        usd_per_h,
        saving,
        minimised_per_h=fleet.cost_per_h,
        power_w=paid.power_w,
        carbon_kg_per_h=paid.carbon_kg_per_h,
    )


def shape(grid: Grid, fleet: Fleet) -> tuple[int, float, int, int]:
    """B, γ and both counts as they are reported: one pool is short, with B = C_l."""
    if fleet.cell == ONE_POOL:
        return grid.request.long_context_tokens, 1.0, fleet.long_replicas, 0
    boundary, gamma = grid.boundary_and_gamma(fleet.cell)
    return boundary, gamma, fleet.short_replicas, fleet.long_replicas
