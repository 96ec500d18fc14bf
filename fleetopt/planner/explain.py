"""Why a plan is what it is, and how much depends on each of its premises.

Every figure is another search: nothing is extrapolated from the plan's own.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import takewhile
from typing import Final

from fleetopt.planner.availability import replicas_up
from fleetopt.planner.baselines import shape
from fleetopt.planner.bounds import lower_bounds
from fleetopt.planner.cost import CostUnit
from fleetopt.planner.fixed import best
from fleetopt.planner.grid import Grid, Index, build
from fleetopt.planner.outcome import Binding, Plan, PoolPlan
from fleetopt.planner.pool import load_replicas
from fleetopt.planner.profile_effects import profile_effects
from fleetopt.planner.recommendation import ProfileEffect
from fleetopt.planner.request import PlanRequest
from fleetopt.planner.search import cells_at, cheapest
from fleetopt.planner.workload import Workload

FLAT_WITHIN: Final = 0.03
"""Costs this close to the lowest count as equal; it is also the regret at which B moves."""
FLAT_RATIO: Final = 2.0
"""A curve is flat where an octave of boundaries costs about the same."""

_RATE_STEP: Final = 0.10
_SHARE_STEP: Final = 0.25
_SLO_STEP: Final = 0.10
_TEN_MS: Final = 0.01
_ROUNDING: Final = 1e-9


class Premise(StrEnum):
    """What a plan's cost is sensitive to."""

    ARRIVAL_RATE = "arrival_rate_per_s"
    COMPRESSIBLE_SHARE = "compressible_share"
    SLO_BASE = "slo_base_s"
    E2E_BASE = "slo_e2e_base_s"
    GAP = "slo_itl_p99_s"
    CACHED_SHARE = "cached_share"


@dataclass(frozen=True)
class BoundaryCost:
    """The cheapest fleet at one boundary; at the long context that is one pool."""

    boundary_tokens: int
    gamma: float
    short_replicas: int
    long_replicas: int
    cost_per_h: float


@dataclass(frozen=True)
class Neighbour:
    """What the next boundary on one side would change, in whole replicas and with its best γ."""

    boundary_tokens: int
    change_per_h: float
    change_per_h_per_token: float  # of distance; the same sign


@dataclass(frozen=True)
class Sensitivity:
    """The cheapest fleet if one premise were another; None where no fleet meets the target."""

    premise: Premise
    value: float
    cost_per_h: float | None
    change_per_h: float | None


@dataclass(frozen=True)
class PoolSizing:
    """Which constraint set a pool's replicas, and what load and the minimum alone ask for."""

    name: str
    binding: Binding
    replicas: int
    load_replicas: int
    min_replicas: int


@dataclass(frozen=True)
class Explanation:
    """A plan's premises and alternatives.

    `curve` has every boundary at which some fleet meets the target, in order, whether or not
    the boundary was pinned; the last is one pool, if that does. Costs are in `unit` per hour.
    """

    unit: CostUnit
    pools: tuple[PoolSizing, ...]
    curve: tuple[BoundaryCost, ...]
    infeasible_boundaries_tokens: tuple[int, ...]
    flat_from_tokens: int
    flat_to_tokens: int
    lower: Neighbour | None
    higher: Neighbour | None
    sensitivities: tuple[Sensitivity, ...]
    ten_ms_of_slo_per_h: float | None  # mean over ±10 % of the base: replicas are whole
    depends_on: tuple[ProfileEffect, ...]  # figures of engine profiles, the most first

    @property
    def is_flat(self) -> bool:
        """Whether an octave of boundaries costs within FLAT_WITHIN of the lowest."""
        return self.flat_to_tokens >= FLAT_RATIO * self.flat_from_tokens

    @property
    def cheapest(self) -> BoundaryCost:
        """The lowest point of the curve, the first of equals."""
        return min(self.curve, key=lambda point: point.cost_per_h)


def explain(workload: Workload, request: PlanRequest, chosen: Plan) -> Explanation:
    """What bound the plan, what other boundaries cost, and what each premise is worth.

    Parameters
    ----------
    workload : Workload
        As it was planned for.
    request : PlanRequest
        As it was asked. A pinned boundary stays pinned for the sensitivities, not for the curve.
    chosen : Plan
        What `plan(workload, request)` returned.

    Returns
    -------
    Explanation
        Costs in the unit that is minimised, compression included.

    Notes
    -----
    About a hundred searches: 0.03 s where utilisation decides, up to 1 s where a target does.
    With targets end to end or between tokens it takes some seconds.
    """
    points, infeasible = _curve(build(workload, request))
    low, high = _flat(points, chosen)
    sensitivities = tuple(_sensitivities(workload, request, chosen.minimised_per_h))
    pools = (chosen.short,) if chosen.long is None else (chosen.short, chosen.long)
    return Explanation(
        unit=request.minimise,
        pools=tuple(_sizing(pool, request) for pool in pools),
        curve=points,
        infeasible_boundaries_tokens=infeasible,
        flat_from_tokens=low,
        flat_to_tokens=high,
        lower=_neighbour(points, infeasible, chosen, -1),
        higher=_neighbour(points, infeasible, chosen, 1),
        sensitivities=sensitivities,
        ten_ms_of_slo_per_h=_ten_ms(request, chosen.minimised_per_h, sensitivities),
        depends_on=profile_effects(workload, request, request.boundary_tokens),
    )


def _curve(grid: Grid) -> tuple[tuple[BoundaryCost, ...], tuple[int, ...]]:
    """The cheapest fleet at every boundary, and the boundaries without one."""
    bound = lower_bounds(grid)
    points, infeasible = [], []
    for boundary, cells in _cells_by_boundary(grid):
        fleet = cheapest(grid, cells, bound)
        if fleet is None:
            infeasible.append(boundary)
        else:
            points.append(BoundaryCost(*shape(grid, fleet), fleet.cost_per_h))
    return tuple(points), tuple(infeasible)


def _cells_by_boundary(grid: Grid) -> Iterator[tuple[int, Index]]:
    context = grid.request.long_context_tokens
    for row in range(1, grid.rows):
        boundary = int(grid.boundaries[row])
        if boundary < context:
            yield boundary, cells_at(grid, boundary)
    yield context, cells_at(grid, context)


def _flat(points: tuple[BoundaryCost, ...], chosen: Plan) -> tuple[int, int]:
    """The boundaries around the cheapest (the plan's, among equals) that cost about as much."""
    lowest = min(point.cost_per_h for point in points)
    equal = [at for at, point in enumerate(points) if _close(point.cost_per_h, lowest)]
    here = min(equal, key=lambda at: points[at].boundary_tokens != chosen.boundary_tokens)

    def near(point: BoundaryCost) -> bool:
        return point.cost_per_h <= lowest * (1.0 + FLAT_WITHIN)

    below = list(takewhile(near, reversed(points[: here + 1])))
    above = list(takewhile(near, points[here:]))
    return below[-1].boundary_tokens, above[-1].boundary_tokens


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_ROUNDING)


def _neighbour(
    points: tuple[BoundaryCost, ...], infeasible: tuple[int, ...], chosen: Plan, side: int
) -> Neighbour | None:
    """The next boundary below (-1) or above (1); None where there is none or no fleet for it."""
    costs: dict[int, float | None] = dict.fromkeys(infeasible)
    costs |= {point.boundary_tokens: point.cost_per_h for point in points}
    beyond = [tokens for tokens in costs if (tokens - chosen.boundary_tokens) * side > 0]
    if not beyond:
        return None
    tokens = min(beyond, key=lambda other: abs(other - chosen.boundary_tokens))
    cost = costs[tokens]
    if cost is None:
        return None
    change = cost - chosen.minimised_per_h
    return Neighbour(tokens, change, change / abs(tokens - chosen.boundary_tokens))


def _sizing(pool: PoolPlan, request: PlanRequest) -> PoolSizing:
    up = replicas_up(pool.replicas, request.node_availability)
    needed = load_replicas(pool.utilization * up, request)
    return PoolSizing(
        name=pool.name,
        binding=pool.binding,
        replicas=pool.replicas,
        load_replicas=int(needed),
        min_replicas=request.min_replicas,
    )


def _sensitivities(workload: Workload, request: PlanRequest, cost: float) -> Iterator[Sensitivity]:
    for premise, value, traffic, asked in _variations(workload, request):
        found = best(traffic, asked, asked.boundary_tokens)
        if found is None:
            yield Sensitivity(premise, value, None, None)
        else:
            change = found.cost_per_h - cost
            yield Sensitivity(premise, value, found.cost_per_h, change)


def _variations(
    workload: Workload, request: PlanRequest
) -> Iterator[tuple[Premise, float, Workload, PlanRequest]]:
    """Each premise at its other values, in rising order."""
    for sign in (-1.0, 1.0):
        rate_per_s = workload.arrival_rate_per_s * (1.0 + sign * _RATE_STEP)
        yield Premise.ARRIVAL_RATE, rate_per_s, workload.scaled_to(rate_per_s), request
    for sign in (-1.0, 1.0):
        share = min(max(request.compressible_share + sign * _SHARE_STEP, 0.0), 1.0)
        if share != request.compressible_share:
            asked = replace(request, compressible_share=share)
            yield Premise.COMPRESSIBLE_SHARE, share, workload, asked
    if workload.moments.cached_share > 0.0:  # a cold cache
        yield Premise.CACHED_SHARE, 0.0, workload.with_cached_share(0.0), request
    for base_s in _bases_s(request.slo_ttft_p99.base_s):
        target = replace(request.slo_ttft_p99, base_s=base_s)
        yield Premise.SLO_BASE, base_s, workload, replace(request, slo_ttft_p99=target)
    for sign in (-1.0, 1.0):
        factor = 1.0 + sign * _SLO_STEP
        if request.slo_e2e_p99 is not None and request.slo_e2e_p99.base_s > 0.0:
            base_s = request.slo_e2e_p99.base_s * factor
            e2e = replace(request.slo_e2e_p99, base_s=base_s)
            yield Premise.E2E_BASE, base_s, workload, replace(request, slo_e2e_p99=e2e)
    for sign in (-1.0, 1.0):
        if request.slo_itl_p99_s is not None:
            gap_s = request.slo_itl_p99_s * (1.0 + sign * _SLO_STEP)
            yield Premise.GAP, gap_s, workload, replace(request, slo_itl_p99_s=gap_s)


def _bases_s(base_s: float) -> list[float]:
    """The target's base ± 10 ms and ± 10 %, where that is above 0."""
    steps_s = {round(_TEN_MS, 12), round(base_s * _SLO_STEP, 12)} - {0.0}
    around = [round(base_s + sign * step_s, 12) for step_s in steps_s for sign in (-1.0, 1.0)]
    return sorted(value for value in around if value > 0.0)


def _ten_ms(
    request: PlanRequest, cost: float, sensitivities: tuple[Sensitivity, ...]
) -> float | None:
    """Mean saving per 10 ms of base, between the lowest and the highest that some fleet meets."""
    costs = {request.slo_ttft_p99.base_s: cost}
    for one in sensitivities:
        if one.premise is Premise.SLO_BASE and one.cost_per_h is not None:
            costs[one.value] = one.cost_per_h
    low, high = min(costs), max(costs)
    if high == low:
        return None
    return (costs[low] - costs[high]) / (high - low) * _TEN_MS
