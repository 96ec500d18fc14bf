"""Figures of a whole fleet: both pools, compression, cost and power."""

from dataclasses import replace

import numpy as np

from fleetopt.planner.band import compressed
from fleetopt.planner.bins import EDGES_TOKENS
from fleetopt.planner.cost import SECONDS_PER_HOUR, GpuCost
from fleetopt.planner.grid import ONE_POOL, Grid
from fleetopt.planner.moments import MOMENTS
from fleetopt.planner.outcome import Plan
from fleetopt.planner.report import marginal_gpus, pool_plan


def fleet_plan(grid: Grid, cell: int, short_replicas: int, long_replicas: int) -> Plan:
    """Figures at exactly these replicas; baselines and reasons are left to the caller.

    In the cell ONE_POOL the one pool is counted as long.
    """
    request = grid.request
    cells = np.array([cell], dtype=np.intp)
    context = request.long_context_tokens
    boundary, gamma = (context, 1.0) if cell == ONE_POOL else grid.boundary_and_gamma(cell)
    longs = grid.long_pools(cells)
    minimised = request.long_rate.of(long_replicas, float(longs.load[0]))
    if cell == ONE_POOL:
        short = pool_plan("short", longs, context, long_replicas, grid)
        long = None
    else:
        shorts = grid.short_pools(cells)
        minimised += request.short_rate.of(short_replicas, float(shorts.load[0]))
        short = pool_plan("short", shorts, boundary, short_replicas, grid)
        long = pool_plan("long", longs, context, long_replicas, grid)
        long = replace(long, min_tokens=boundary + 1)
    moved = grid.moved[:MOMENTS, cell]
    minimised += float(moved[0]) * request.compression_penalty * SECONDS_PER_HOUR
    arrived = compressed(moved, np.asarray(float(boundary)))
    before = float(grid.moments[1].sum() + grid.moments[2].sum())
    after = before - float(moved[1] - arrived[1])
    step, row = divmod(cell, grid.rows)
    below, above = marginal_gpus(grid, cell)
    paid = GpuCost(short.cost_usd_per_h, short.power_w, short.carbon_kg_per_h)
    is_bound = short.power_is_upper_bound or bool(long and long.power_is_upper_bound)
    if long:
        paid += GpuCost(long.cost_usd_per_h, long.power_w, long.carbon_kg_per_h)
    return Plan(
        boundary_tokens=boundary,
        gamma=gamma,
        compress_up_to_tokens=min(int(EDGES_TOKENS[row - 1 + step]), context) if row else context,
        short=short,
        long=long,
        gpu_cost_usd_per_h=paid.usd_per_h,
        compression_usd_per_h=request.compression_usd_per_h(float(moved[0])),
        compressed_share=float(moved[0]) / grid.arrival_rate_per_s,
        compressed_per_s=float(moved[0]),
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
