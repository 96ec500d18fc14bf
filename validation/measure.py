"""Plan a row, simulate its pools, and put both side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.figures import fleet_at
from fleetopt.planner.outcome import Infeasible, Plan, PoolPlan
from fleetopt.planner.plan import plan
from fleetopt.planner.request import PlanRequest
from fleetopt.planner.simulate.fleet import SimulatedFleet, SimulatedPool
from fleetopt.planner.simulate.simulation import slot_service_s
from fleetopt.planner.simulate.stream import RequestStream
from fleetopt.planner.target import TTFT_VIOLATIONS_MAX
from fleetopt.planner.workload import Workload
from validation import streams, traffic
from validation.rows import Arrivals, Row
from validation.simulated import (
    Draw,
    Limits,
    Simulated,
    SimulatedSlots,
    settling_s,
    simulated,
    simulated_slots,
)

FEWEST_REPLICAS: Final = 5
"""Smaller pools are shown but not counted."""

UTILIZATION_WITHIN: Final = 0.01
OCCUPANCY_WITHIN: Final = 0.05
P99_BELOW: Final = 0.02
P99_ABOVE: Final = 0.20
_ERRORS: Final = 2.0
TENANT_SEEDS: Final = (1, 2, 3, 4)
TENANTS_S: Final = 3_600.0
TENANT_REQUESTS: Final = 500_000
"""A run with tenants lasts for the whole hour of the trace or has so many requests: less would
show more or fewer of the bursts than there are."""


class Verdict(StrEnum):
    """What a figure's comparison says."""

    HOLDS = "holds"
    LOW = "low"
    HIGH = "high"


@dataclass(frozen=True, slots=True)
class Predicted:
    """What the planner says of a pool at the rate at which it is simulated."""

    utilization: float
    slot_occupancy: float
    mean_iteration_s: float
    ttft_p99_s: float
    violation_share: float
    e2e_p99_s: float
    itl_p99_s: float


@dataclass(frozen=True, slots=True)
class PoolResult:
    """One pool of a row."""

    name: str
    replicas: int
    slots: int
    rate_per_s: float
    binding: str
    predicted: Predicted
    simulated: Simulated
    slot_level: SimulatedSlots

    @property
    def is_counted(self) -> bool:
        """Whether the pool has enough replicas to be held to the goals."""
        return self.replicas >= FEWEST_REPLICAS

    @property
    def utilization_error(self) -> float:
        """Predicted over slot-level utilisation at the rate that was drawn, less 1."""
        drawn = self.slot_level.arrival_rate_per_s / self.rate_per_s
        return self.predicted.utilization * drawn / self.slot_level.utilization - 1.0

    @property
    def occupancy_error(self) -> float:
        """Predicted over simulated slot occupancy, less 1."""
        return self.predicted.slot_occupancy / max(self.simulated.slot_occupancy, 1e-12) - 1.0

    @property
    def p99_error(self) -> float:
        """Predicted over simulated P99 TTFT, less 1."""
        return self.predicted.ttft_p99_s / max(self.simulated.ttft_p99_s, 1e-12) - 1.0

    @property
    def e2e_error(self) -> float:
        """Predicted over simulated P99 end to end, less 1."""
        return self.predicted.e2e_p99_s / max(self.simulated.e2e_p99_s, 1e-12) - 1.0

    @property
    def itl_error(self) -> float:
        """Predicted over simulated P99 between tokens, less 1."""
        return self.predicted.itl_p99_s / max(self.simulated.itl_p99_s, 1e-12) - 1.0

    @property
    def meets_target(self) -> bool:
        """Whether the simulation finds at most 1 % of the requests over their target."""
        return self.simulated.violation_share <= TTFT_VIOLATIONS_MAX

    @property
    def utilization(self) -> Verdict:
        """Within 1 %, or by more only as chance would have it."""
        allowed = UTILIZATION_WITHIN + _ERRORS * self.slot_level.work_error
        return _verdict(self.utilization_error, -allowed, allowed)

    @property
    def occupancy(self) -> Verdict:
        """Within 5 %."""
        return _verdict(self.occupancy_error, -OCCUPANCY_WITHIN, OCCUPANCY_WITHIN)

    @property
    def p99(self) -> Verdict:
        """Low or high only if no P99 in the simulation's interval would do."""
        predicted, seen = self.predicted.ttft_p99_s, self.simulated
        if predicted < (1.0 - P99_BELOW) * seen.ttft_p99_low_s:
            return Verdict.LOW
        if predicted > (1.0 + P99_ABOVE) * seen.ttft_p99_high_s:
            return Verdict.HIGH
        return Verdict.HOLDS


@dataclass(frozen=True, slots=True)
class RowResult:
    """One row: its plan's pools, or why there is no plan."""

    row: Row
    name: str
    planned_rate_per_s: float
    dispersion: float
    boundary_tokens: int
    gamma: float
    pools: tuple[PoolResult, ...]
    infeasible: str = ""


def measure(row: Row, limits: Limits | None = None) -> RowResult:
    """Plan for the row's traffic as the product would, and simulate each pool of the plan.

    Tenants' arrivals are planned for by their peaks and their dispersion, as a window of logs
    would show them; predictions are then made anew at the mean rate, for the same fleet.
    """
    request = row.request()
    recorded = traffic.requests(row.traffic)
    workload = Workload.from_requests(
        recorded.prompt_tokens, recorded.completion_tokens, row.rate_per_s
    )
    planned_for = workload
    if row.arrivals is Arrivals.TENANTS:
        seen = streams.observed(row.traffic, row.rate_per_s)
        workload = replace(
            workload, dispersion=seen.dispersion, dispersion_by_scale=seen.dispersion_by_scale
        )
        planned_for = workload.scaled_to(seen.planned_per_s)
    chosen = plan(planned_for, request)
    if isinstance(chosen, Infeasible):
        rate, dispersion = planned_for.arrival_rate_per_s, planned_for.dispersion
        return RowResult(row, row.name, rate, dispersion, 0, 1.0, (), chosen.message)
    fleet = SimulatedFleet.of_plan(chosen, request)
    predicted = predicted_pools(chosen, workload, request)
    pools = tuple(_pool(row, fleet, at, planned, limits) for at, planned in enumerate(predicted))
    return RowResult(
        row,
        row.name,
        planned_for.arrival_rate_per_s,
        planned_for.dispersion,
        chosen.boundary_tokens,
        chosen.gamma,
        pools,
    )


def predicted_pools(chosen: Plan, workload: Workload, request: PlanRequest) -> tuple[PoolPlan, ...]:
    """What the planner predicts of the plan's fleet under this workload."""
    replicas = (chosen.short_replicas, chosen.long_replicas)
    return fleet_at(workload, request, chosen.boundary_tokens, chosen.gamma, replicas).pools


def _pool(
    row: Row, fleet: SimulatedFleet, at: int, planned: PoolPlan, limits: Limits | None
) -> PoolResult:
    part = streams.pools_traffic(row.traffic, fleet)[at]
    rate_per_s = row.rate_per_s * part.share
    question = [row.traffic, row.arrivals, fleet.boundary_tokens, fleet.compress_up_to_tokens, at]
    draw = _draw(row, fleet, at, part)
    seeds, bounds = _runs(row, part, limits or Limits())
    iterations = _iterations(fleet.pools[at], part.routed)
    slowdown = planned.mean_iteration_s / fleet.pools[at].profile.base_iteration_s
    seen = simulated(
        fleet.pools[at],
        fleet.target,
        draw,
        question,
        rate_per_s=rate_per_s,
        # Iterations get longer as a pool fills, and so it fills more slowly than requests go.
        settling_s=slowdown * settling_s(planned.mean_iteration_s * iterations),
        running=planned.slot_occupancy * planned.max_num_seqs * planned.replicas,
        seeds=seeds,
        limits=bounds,
    )
    slots = simulated_slots(
        fleet.pools[at],
        fleet.target,
        draw,
        question,
        rate_per_s=rate_per_s,
        settling_s=settling_s(slot_service_s(fleet.pools[at], part.routed)),
        limits=bounds,
    )
    return PoolResult(
        name=planned.name if len(fleet.pools) > 1 else "one",
        replicas=planned.replicas,
        slots=planned.max_num_seqs,
        rate_per_s=rate_per_s,
        binding=planned.binding.value,
        predicted=Predicted(
            planned.utilization,
            planned.slot_occupancy,
            planned.mean_iteration_s,
            planned.ttft_p99_s,
            planned.ttft_violation_share,
            planned.e2e_p99_s,
            planned.itl_p99_s,
        ),
        simulated=seen,
        slot_level=slots,
    )


def _draw(row: Row, fleet: SimulatedFleet, at: int, part: streams.PoolTraffic) -> Draw:
    """What reaches one pool, by the number of its requests and a seed."""

    def draw(count: int, seed: int) -> RequestStream:
        if row.arrivals is Arrivals.POISSON:
            return streams.poisson(part, row.rate_per_s, count, seed)
        whole = int(count / part.share)
        return streams.tenants(row.traffic, fleet, at, row.rate_per_s, whole, seed)

    return draw


def _runs(row: Row, part: streams.PoolTraffic, limits: Limits) -> tuple[tuple[int, ...], Limits]:
    """The seed of each run, and how many of the pool's requests it may take."""
    if row.arrivals is Arrivals.POISSON:
        return (1,), limits
    whole = min(TENANTS_S * row.rate_per_s, TENANT_REQUESTS, limits.most)
    first = max(limits.first // len(TENANT_SEEDS), int(whole * part.share))
    return TENANT_SEEDS, replace(limits, first=first)


def _iterations(pool: SimulatedPool, requests: RequestStream) -> NDArray[np.float64]:
    chunks = requests.prompt_tokens / pool.profile.prefill_chunk_tokens
    return np.asarray(np.ceil(chunks) + requests.completion_tokens, dtype=np.float64)


def _verdict(error: float, low: float, high: float) -> Verdict:
    if error < low:
        return Verdict.LOW
    return Verdict.HIGH if error > high else Verdict.HOLDS
