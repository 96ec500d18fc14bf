"""Figures of a whole fleet: both pools, compression, cost and power."""

import math
from dataclasses import replace

import numpy as np

from fleetopt.planner.band import compressed
from fleetopt.planner.bins import BINS_PER_OCTAVE, EDGES_TOKENS
from fleetopt.planner.cost import SECONDS_PER_HOUR, GpuCost
from fleetopt.planner.grid import ONE_POOL, Grid, build
from fleetopt.planner.moments import COMPLETION, COUNT, MOMENTS, PROMPT
from fleetopt.planner.outcome import Plan, PoolPlan
from fleetopt.planner.report import marginal_gpus, pool_plan
from fleetopt.planner.request import PlanRequest
from fleetopt.planner.workload import Workload


def fleet_at(
    workload: Workload,
    request: PlanRequest,
    boundary_tokens: int,
    gamma: float,
    replicas: tuple[int, int],
) -> Plan:
    """Figures of a given fleet under a workload; of one pool, the replicas are the first count.

    Parameters
    ----------
    workload : Workload
        With requests in it.
    request : PlanRequest
        Engines, target and prices; its own boundary_tokens and gamma_max play no part.
    boundary_tokens : int
        A bin edge below the long context, or the long context for one pool.
    gamma : float
        ≥ 1; rounded to the nearest 2^(j/8).
    replicas : tuple of int
        Of the short pool and of the long one.
    """
    return fleet_in(*grid_at(workload, request, boundary_tokens, gamma), replicas)


def fleet_in(grid: Grid, cell: int, replicas: tuple[int, int]) -> Plan:
    """Figures of a given fleet in a cell; of one pool, the replicas are the first count."""
    short, long = (0, replicas[0]) if cell == ONE_POOL else replicas
    return fleet_plan(grid, cell, short, long)


def grid_at(
    workload: Workload, request: PlanRequest, boundary_tokens: int, gamma: float
) -> tuple[Grid, int]:
    """A grid up to this γ, and the cell of this boundary with it; arguments as of `fleet_at`."""
    step = round(math.log2(gamma) * BINS_PER_OCTAVE)
    grid = build(workload, replace(request, gamma_max=2.0 ** (step / BINS_PER_OCTAVE)))
    if boundary_tokens == request.long_context_tokens:
        return grid, ONE_POOL
    row = grid.row_of(boundary_tokens)
    return grid, min(step, grid.rows - row) * grid.rows + row


def fleet_plan(grid: Grid, cell: int, short_replicas: int, long_replicas: int) -> Plan:
    """Figures at exactly these replicas; baselines and reasons are left to the caller.

    In the cell ONE_POOL the one pool is counted as long.
    """
    request = grid.request
    context = request.long_context_tokens
    boundary, gamma = (context, 1.0) if cell == ONE_POOL else grid.boundary_and_gamma(cell)
    pools, minimised = _pools(grid, cell, short_replicas, long_replicas)
    moved = grid.moved[:MOMENTS, cell]
    minimised += float(moved[COUNT]) * request.compression_penalty * SECONDS_PER_HOUR
    arrived = compressed(moved, np.asarray(float(boundary)))
    before = float(grid.moments[PROMPT].sum() + grid.moments[COMPLETION].sum())
    after = before - float(moved[PROMPT] - arrived[PROMPT])
    step, row = divmod(cell, grid.rows)
    below, above = marginal_gpus(grid, cell)
    paid = GpuCost(0.0, 0.0, 0.0)
    for pool in pools:
        paid += GpuCost(pool.cost_usd_per_h, pool.power_w, pool.carbon_kg_per_h)
    is_bound = any(pool.power_is_upper_bound for pool in pools)
    return Plan(
        boundary_tokens=boundary,
        gamma=gamma,
        compress_up_to_tokens=min(int(EDGES_TOKENS[row - 1 + step]), context) if row else context,
        short=pools[0],
        long=pools[1] if len(pools) > 1 else None,
        gpu_cost_usd_per_h=paid.usd_per_h,
        compression_usd_per_h=request.compression_usd_per_h(float(moved[COUNT])),
        compressed_share=float(moved[COUNT]) / grid.arrival_rate_per_s,
        compressed_per_s=float(moved[COUNT]),
        tokens_before_per_s=before,
        tokens_after_per_s=after,
        unservable_share=grid.unservable_share,
        marginal_gpus_below=below,
        marginal_gpus_above=above,
        minimised=request.minimise,
        minimised_per_h=minimised,
        power_w=paid.power_w,
        power_is_upper_bound=paid.power_w is not None and is_bound,
        carbon_kg_per_h=paid.carbon_kg_per_h,
        tokens_per_joule=None if paid.power_w is None else after / paid.power_w,
    )


def _pools(
    grid: Grid, cell: int, short_replicas: int, long_replicas: int
) -> tuple[tuple[PoolPlan, ...], float]:
    """The one pool, or the short and the long one, and what they cost in the unit minimised."""
    request, cells = grid.request, np.array([cell], dtype=np.intp)
    context, longs = request.long_context_tokens, grid.long_pools(cells)
    paid = request.long_rate.of(long_replicas, float(longs.load[0]))
    if cell == ONE_POOL:
        return (pool_plan("short", longs, context, long_replicas, grid),), paid
    boundary, _ = grid.boundary_and_gamma(cell)
    shorts = grid.short_pools(cells)
    paid += request.short_rate.of(short_replicas, float(shorts.load[0]))
    short = pool_plan("short", shorts, boundary, short_replicas, grid)
    long = pool_plan("long", longs, context, long_replicas, grid)
    return (short, replace(long, min_tokens=boundary + 1)), paid
