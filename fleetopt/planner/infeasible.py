"""Why there is no plan, and the tightest target that could be met instead."""

import math
from dataclasses import replace
from typing import Final

import numpy as np

from fleetopt.planner.bins import bin_holding
from fleetopt.planner.grid import ONE_POOL, Array, Grid, Index
from fleetopt.planner.outcome import Infeasible, InfeasibleReason
from fleetopt.planner.pool import MOST_PER_LOAD, Pools, least_replicas, queues_at
from fleetopt.planner.request import PlanRequest
from fleetopt.planner.search import cheapest
from fleetopt.planner.service import REQUESTS
from fleetopt.planner.target import TTFT_VIOLATIONS_MAX, TtftTarget
from fleetopt.planner.ttft import exceedance, own_time_s
from fleetopt.planner.workload import Workload

_LONGEST_BASE_S: Final = 3600.0
_HALVINGS: Final = 24
"""An hour halved so often is 0.2 ms: below the step that is told."""

_STEP_S: Final = 0.001


def unplannable(workload: Workload, request: PlanRequest) -> Infeasible | None:
    """What rules out a plan before any search: no traffic, or an engine that is too small."""
    if workload.moments.count == 0.0:
        return Infeasible(
            InfeasibleReason.NO_REQUESTS,
            "the workload holds no requests; keep the last plan until traffic is measured",
        )
    context = request.long_context_tokens
    if workload.moments.count_per_bin[: bin_holding(context) + 1].sum() == 0.0:
        return Infeasible(
            InfeasibleReason.NOTHING_SERVABLE,
            f"every request is longer than long_context_tokens={context}; raise it",
        )
    engine = request.long_profile
    if engine.slots_reserved(context) < 1:
        return Infeasible(
            InfeasibleReason.CONTEXT_EXCEEDS_KV,
            f"{engine.name} holds {engine.kv_capacity_tokens} KV-cache tokens, less than "
            f"long_context_tokens={context}; lower it or take more GPUs per replica",
        )
    return None


def infeasible(grid: Grid, cells: Index) -> Infeasible:
    """The reason that no cell has a fleet."""
    request = grid.request
    target = request.slo_ttft_p99
    limit = request.max_replicas
    if limit is not None:
        unlimited = replace(grid, request=replace(request, max_replicas=None))
        fleet = cheapest(unlimited, cells)
        if fleet:
            needed = max(fleet.short_replicas, fleet.long_replicas)
            return Infeasible(
                InfeasibleReason.MAX_REPLICAS,
                f"{needed} replicas are needed in one pool and max_replicas is {limit}; raise it",
                _tightest(grid, cells),
            )
        grid = unlimited
    tightest = _tightest(grid, cells)
    if tightest is None:
        reachable = f"not even a base of {_LONGEST_BASE_S:g}s would do"
    else:
        reachable = f"the tightest that can be met is {tightest}"
    return Infeasible(
        InfeasibleReason.SLO_UNREACHABLE,
        f"no fleet can meet slo_ttft_p99={target}: prefill alone takes longer; {reachable}",
        tightest,
    )


def _tightest(grid: Grid, cells: Index) -> TtftTarget | None:
    base_s = _tightest_base_s(grid, cells)
    return None if base_s is None else replace(grid.request.slo_ttft_p99, base_s=base_s)


def _tightest_base_s(grid: Grid, cells: Index) -> float | None:
    """Smallest base, in whole milliseconds, that some cell meets with as many replicas as it may.

    Only the smallest and the largest γ of every boundary are tried.
    """
    step = cells // grid.rows
    ends = cells[(step == 0) | (step == grid.steps - 1)]
    base = _base_s(grid, grid.long_pools(ends))
    two = np.flatnonzero(ends != ONE_POOL)
    if two.size:
        base[two] = np.maximum(base[two], _base_s(grid, grid.short_pools(ends[two])))
    best = float(base.min())
    return math.ceil(best / _STEP_S + 1e-6) * _STEP_S if math.isfinite(best) else None


def _base_s(grid: Grid, pools: Pools) -> Array:
    """Smallest base of each pool; infinite where not even an hour is enough."""
    request: PlanRequest = grid.request
    floor = least_replicas(pools.load, request)
    most = np.minimum(floor * MOST_PER_LOAD, float(request.max_replicas or math.inf))
    possible = np.isfinite(floor) & (floor <= most)
    state = queues_at(pools, np.where(possible, most, 1.0), request, grid.bursts)
    own = own_time_s(pools.mix, state.field, pools.engine)
    lead = request.slo_ttft_p99.per_prompt_token_s * pools.mix.tokens - own

    def meets(base_s: Array) -> Array:
        over = (pools.mix.share * exceedance(state, base_s[:, None] + lead)).sum(axis=1)
        return np.asarray((over <= TTFT_VIOLATIONS_MAX) | (pools.sums.per_s[REQUESTS] <= 0.0))

    low, high = np.zeros(floor.size), np.full(floor.size, _LONGEST_BASE_S)
    reachable = possible & meets(high).astype(bool)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        met = meets(middle)
        high = np.where(met, middle, high)
        low = np.where(met, low, middle)
    return np.where(reachable, high, np.inf)
