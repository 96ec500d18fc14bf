"""A fleet whose boundary, γ or counts are given: what it needs, and what it does.

The planner chooses γ afresh every time; whoever wants to stay asks here what staying takes.
"""

from dataclasses import dataclass, replace

import numpy as np

from fleetopt.planner.baselines import shape
from fleetopt.planner.figures import fleet_in, grid_at
from fleetopt.planner.grid import ONE_POOL, build
from fleetopt.planner.infeasible import unplannable
from fleetopt.planner.outcome import Binding
from fleetopt.planner.outcome import ReasonCode as PlanReason
from fleetopt.planner.recommendation import PlanRecord, PoolRecord
from fleetopt.planner.record import plan_record
from fleetopt.planner.request import PlanRequest
from fleetopt.planner.search import cells_at, cheapest
from fleetopt.planner.workload import Workload


@dataclass(frozen=True, slots=True)
class Needed:
    """Fewest replicas of each pool, and their cost with that of compression, in its unit."""

    short_replicas: int
    long_replicas: int
    cost_per_h: float


@dataclass(frozen=True, slots=True)
class Best:
    """The cheapest fleet, without the figures that a plan has."""

    boundary_tokens: int
    gamma: float
    needed: Needed

    @property
    def cost_per_h(self) -> float:
        """GPUs and compression, in the unit that is minimised."""
        return self.needed.cost_per_h


def best(workload: Workload, request: PlanRequest, boundary_tokens: int | None) -> Best | None:
    """The cheapest fleet at a boundary, or at any; None where none meets the target.

    The same fleet that `plan` finds, in a tenth of the time.
    """
    if unplannable(workload, request):
        return None
    grid = build(workload, request)
    fleet = cheapest(grid, cells_at(grid, boundary_tokens))
    if fleet is None:
        return None
    boundary, gamma, short_replicas, long_replicas = shape(grid, fleet)
    needed = Needed(short_replicas, long_replicas, fleet.cost_per_h)
    return Best(boundary, gamma, needed)


def needed_at(
    workload: Workload, request: PlanRequest, boundary_tokens: int, gamma: float
) -> Needed | None:
    """Fewest replicas at this boundary and γ, None where no number meets the target.

    Parameters
    ----------
    workload : Workload
        With requests in it.
    request : PlanRequest
        Its own boundary_tokens is not looked at.
    boundary_tokens : int
        A bin edge below the long context, or the long context for one pool.
    gamma : float
        A power of 2^(1/8), ≥ 1; not above the request's gamma_max.
    """
    grid, cell = grid_at(workload, request, boundary_tokens, gamma)
    fleet = cheapest(grid, np.array([cell], dtype=np.intp))
    if fleet is None:
        return None
    if cell == ONE_POOL:
        return Needed(fleet.long_replicas, 0, fleet.cost_per_h)
    return Needed(fleet.short_replicas, fleet.long_replicas, fleet.cost_per_h)


def record_at(
    workload: Workload,
    request: PlanRequest,
    boundary_tokens: int,
    gamma: float,
    needed: Needed,
    replicas: tuple[int, int],
) -> PlanRecord:
    """Figures of both pools at exactly these replicas.

    Parameters
    ----------
    workload, request, boundary_tokens, gamma
        As of `needed_at`.
    needed : Needed
        What that found: it becomes `needed_replicas`, with what binds there.
    replicas : tuple of int
        Short and long; with one pool the first is its.
    """
    grid, cell = grid_at(workload, request, boundary_tokens, gamma)
    here = plan_record(fleet_in(grid, cell, replicas))
    asked, counts = here, (needed.short_replicas, needed.long_replicas)
    if replicas != counts:
        asked = plan_record(fleet_in(grid, cell, counts))
    short = _needed(here.short, asked.short)
    long = None if here.long is None or asked.long is None else _needed(here.long, asked.long)
    pools = [short] if long is None else [short, long]
    reasons = _reasons(pools, here.gamma > 1.0, here.unservable_share)
    return replace(here, short=short, long=long, reasons=reasons)


def _needed(published: PoolRecord, asked: PoolRecord) -> PoolRecord:
    return replace(published, needed_replicas=asked.replicas, binding=asked.binding)


def _reasons(
    pools: list[PoolRecord], compresses: bool, unservable_share: float
) -> tuple[PlanReason, ...]:
    bindings = {pool.binding for pool in pools}
    has_two = len(pools) > 1
    applies = {
        PlanReason.BOUNDARY_PINNED: True,
        PlanReason.SINGLE_POOL_SUFFICIENT: not has_two,
        PlanReason.COMPRESSION_PAYS: compresses,
        PlanReason.COMPRESSION_NOT_WORTH_IT: has_two and not compresses,
        PlanReason.SLO_BINDS: bool(bindings & {Binding.PREFILL_TTFT, Binding.QUEUE_WAIT}),
        PlanReason.END_TO_END_BINDS: Binding.END_TO_END in bindings,
        PlanReason.BETWEEN_TOKENS_BINDS: Binding.BETWEEN_TOKENS in bindings,
        PlanReason.UTILIZATION_BINDS: Binding.UTILIZATION in bindings,
        PlanReason.MINIMUM_BINDS: Binding.MINIMUM in bindings,
        PlanReason.REQUESTS_OVER_LONG_CONTEXT: unservable_share > 0.0,
    }
    return tuple(reason for reason, holds in applies.items() if holds)
