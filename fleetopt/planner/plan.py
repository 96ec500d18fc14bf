"""The planner's front door: plan(workload, request) → Plan | Infeasible."""

import math
from dataclasses import replace

import numpy as np

from fleetopt.errors import ConfigError
from fleetopt.planner.availability import replicas_up
from fleetopt.planner.baselines import baselines, shape
from fleetopt.planner.bounds import lower_bounds
from fleetopt.planner.cost import CostUnit
from fleetopt.planner.figures import fleet_plan, grid_at
from fleetopt.planner.grid import ONE_POOL, Grid, Index, build
from fleetopt.planner.infeasible import infeasible, unplannable
from fleetopt.planner.outcome import (
    Baseline,
    BaselineName,
    Binding,
    Infeasible,
    InfeasibleReason,
    Plan,
    PoolPlan,
    ReasonCode,
)
from fleetopt.planner.request import Admission, PlanRequest, check_boundary
from fleetopt.planner.search import cells_at, cheapest
from fleetopt.planner.workload import Workload

__all__ = [
    "Admission",
    "Baseline",
    "BaselineName",
    "Binding",
    "CostUnit",
    "Infeasible",
    "InfeasibleReason",
    "Plan",
    "PlanRequest",
    "PoolPlan",
    "ReasonCode",
    "Workload",
    "loads",
    "plan",
    "plan_pinned",
    "search",
]


def plan(workload: Workload, request: PlanRequest) -> Plan | Infeasible:
    """The cheapest fleet that meets the target, or why there is none.

    Parameters
    ----------
    workload : Workload
        Lengths before compression, and the rate to plan for.
    request : PlanRequest
        With `boundary_tokens` set, B is taken as given and γ and the counts are chosen.

    Returns
    -------
    Plan or Infeasible
        No exception and no NaN: a target that can't be met is an answer.

    Examples
    --------
    >>> from fleetopt.planner.engine import EngineProfile
    >>> from fleetopt.planner.target import TtftTarget
    >>> a100 = EngineProfile("a100", "a100", "llama", 1, 8e-3, 0, 8e-8, 0, 0, 512, 2**20, 2.21)
    >>> request = PlanRequest(a100, a100, 65536, TtftTarget(60.0), Admission.RESERVED)
    >>> chosen = plan(Workload.from_cdf([(2048, 0.9), (65536, 1.0)], 0.2, 9.0), request)
    >>> chosen.boundary_tokens, chosen.short_replicas, chosen.long_replicas
    (32768, 14, 6)
    """
    refused = unplannable(workload, request)
    if refused:
        return refused
    grid = build(workload, request)
    cells = cells_at(grid, request.boundary_tokens)
    bound = lower_bounds(grid)
    fleet = cheapest(grid, cells, bound)
    if fleet is None:
        return infeasible(grid, cells)
    found = fleet_plan(grid, fleet.cell, fleet.short_replicas, fleet.long_replicas)
    step, row = divmod(fleet.cell, grid.rows)
    return replace(
        found,
        baselines=baselines(grid, bound, _uncompressed(grid), fleet),
        reasons=_reasons(grid, step, row, found.pools),
    )


def plan_pinned(
    workload: Workload, request: PlanRequest, boundary_tokens: int
) -> Plan | Infeasible:
    """The best γ and counts at a given B; B = the long context means one pool."""
    return plan(workload, replace(request, boundary_tokens=boundary_tokens))


def search(workload: Workload, request: PlanRequest) -> tuple[int, float, int, int] | None:
    """B, γ and both counts of the cheapest fleet, without figures and baselines.

    This is what the planner's time is measured on. None where no fleet meets the target.
    """
    grid = build(workload, request)
    fleet = cheapest(grid, cells_at(grid, request.boundary_tokens))
    return shape(grid, fleet) if fleet else None


def loads(
    workload: Workload,
    request: PlanRequest,
    boundary_tokens: int,
    gamma: float,
    short_replicas: int,
    long_replicas: int,
) -> tuple[float, float]:
    """Utilisation of both pools of a given fleet under a workload; above 1 is overload.

    Parameters
    ----------
    workload : Workload
        The traffic now.
    request : PlanRequest
        Engines, admission and limits; its own `boundary_tokens` and `gamma_max` play no part.
    boundary_tokens : int
        A bin edge, or the long context for one pool (which is the short one here).
    gamma : float
        ≥ 1; rounded to the nearest 2^(j/8).
    short_replicas, long_replicas : int
        ≥ 0.

    Returns
    -------
    tuple of float
        (ρ_short, ρ_long): 0 for a pool without traffic, infinite for one with traffic and no
        replicas. Never NaN.

    Raises
    ------
    ConfigError
        If an argument is out of range.
    """
    check_boundary(boundary_tokens, request.long_context_tokens)
    if not (math.isfinite(gamma) and gamma >= 1.0):
        raise ConfigError(f"gamma is {gamma}; expected a finite number ≥ 1")
    if min(short_replicas, long_replicas) < 0:
        raise ConfigError(f"replicas are {short_replicas} and {long_replicas}; expected ≥ 0")
    if workload.moments.count == 0.0:
        return 0.0, 0.0
    grid, cell = grid_at(workload, request, boundary_tokens, gamma)
    cells = np.array([cell])
    counts = np.array([short_replicas, long_replicas], dtype=np.float64)
    short_up, long_up = replicas_up(counts, request.node_availability).tolist()
    long_load = float(grid.long_sums(cells).load[0])
    if cell == ONE_POOL:
        return _utilization(long_load, short_up), 0.0
    short_load = float(grid.short_sums(cells).load[0])
    return _utilization(short_load, short_up), _utilization(long_load, long_up)


def _utilization(load: float, up: float) -> float:
    if load <= 0.0:
        return 0.0
    return load / up if up > 0.0 else math.inf


def _uncompressed(grid: Grid) -> Index:
    """Two-pool cells with γ = 1 that baselines may use: B is pinned there too."""
    pinned = grid.request.boundary_tokens
    if pinned is None or pinned == grid.request.long_context_tokens:
        return np.arange(1, grid.rows, dtype=np.intp)
    return np.array([grid.row_of(pinned)], dtype=np.intp)


def _reasons(
    grid: Grid, step: int, row: int, pools: tuple[PoolPlan, ...]
) -> tuple[ReasonCode, ...]:
    """Every code that applies, the choice of pools first."""
    pinned = grid.request.boundary_tokens is not None
    bindings = {pool.binding for pool in pools}
    steps = min(grid.steps - 1, grid.rows - row)
    applies = {
        ReasonCode.BOUNDARY_PINNED: pinned,
        ReasonCode.TWO_POOLS_CHEAPER: row > 0 and not pinned,
        ReasonCode.SINGLE_POOL_SUFFICIENT: row == 0,
        ReasonCode.COMPRESSION_PAYS: step > 0,
        ReasonCode.COMPRESSION_NOT_WORTH_IT: row > 0 and step == 0 and steps > 0,
        ReasonCode.GAMMA_AT_LIMIT: 0 < step == steps,
        ReasonCode.SLO_BINDS: bool(bindings & {Binding.PREFILL_TTFT, Binding.QUEUE_WAIT}),
        ReasonCode.END_TO_END_BINDS: Binding.END_TO_END in bindings,
        ReasonCode.BETWEEN_TOKENS_BINDS: Binding.BETWEEN_TOKENS in bindings,
        ReasonCode.UTILIZATION_BINDS: Binding.UTILIZATION in bindings,
        ReasonCode.MINIMUM_BINDS: Binding.MINIMUM in bindings,
        ReasonCode.REQUESTS_OVER_LONG_CONTEXT: grid.unservable_share > 0.0,
    }
    return tuple(code for code, holds in applies.items() if holds)
