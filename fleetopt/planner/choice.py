"""Which plan becomes the active one: the pinned boundary's, or the best one's after a move.

Owns the three time scales: γ changes at once, replicas through the dead band, the boundary only
on confirmed drift or when the pinned one can no longer serve.
"""

import math
from dataclasses import dataclass, field
from typing import Final

from fleetopt.errors import ConfigError
from fleetopt.planner.drift import (
    NO_DRIFT,
    DriftRule,
    can_stay,
    is_confirmed,
    observe_regret,
    regret_ratio,
    resize,
)
from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.fixed import Best, Needed, best, needed_at, record_at
from fleetopt.planner.outcome import Infeasible, Plan
from fleetopt.planner.plan import plan, plan_pinned
from fleetopt.planner.recommendation import (
    Drift,
    DriftState,
    Evidence,
    PlanRecord,
    PoolRecord,
    PublishReason,
    Recommendation,
)
from fleetopt.planner.record import plan_record
from fleetopt.planner.request import PlanRequest
from fleetopt.planner.workload import Workload

_DEAD_BAND: Final = 0.75 / 0.85


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplanConfig:
    """What a fleet is replanned with.

    Parameters
    ----------
    fleet : str
        Name of the fleet.
    request : PlanRequest
        Engines, target, limits and prices; without a pinned boundary.
    drift : DriftRule
        When the boundary moves.
    valid_for_s : float
        How long a recommendation holds without a newer one; a few planning intervals.
    shrink_utilization : float, optional
        A pool gives a replica up when the others would run below this. By default
        0.75 / 0.85 of the request's max_utilization.

    Raises
    ------
    ConfigError
        If a value is out of range.
    """

    fleet: str
    request: PlanRequest
    drift: DriftRule = field(default_factory=DriftRule)
    valid_for_s: float = 120.0
    shrink_utilization: float | None = None

    def __post_init__(self) -> None:
        if not self.fleet:
            raise ConfigError("fleet is empty; expected a name")
        if self.request.boundary_tokens is not None:
            raise ConfigError(
                f"fleet {self.fleet!r}: boundary_tokens is {self.request.boundary_tokens}; "
                "the replanner pins the boundary itself, so leave it out"
            )
        if not (math.isfinite(self.valid_for_s) and self.valid_for_s > 0.0):
            raise ConfigError(f"valid_for_s is {self.valid_for_s}; expected a finite number > 0")
        shrink, highest = self.shrink_utilization, self.request.max_utilization
        if shrink is not None and not 0.0 < shrink < highest:
            raise ConfigError(
                f"shrink_utilization is {shrink}; expected more than 0 and less than "
                f"max_utilization={highest}"
            )

    @property
    def dead_band_ratio(self) -> float:
        """Load that a pool must be fit for before it shrinks, as a multiple of the present one."""
        if self.shrink_utilization is None:
            return 1.0 / _DEAD_BAND
        return self.request.max_utilization / self.shrink_utilization

    def at_higher_load(self, workload: Workload) -> Workload:
        """The workload at the upper end of the dead band."""
        return workload.scaled_to(workload.arrival_rate_per_s * self.dead_band_ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The plan to publish and how it came about.

    `pinned` is the best fleet at the boundary published until now, None where there is none;
    `moved_from` that boundary where this choice leaves it, and `blocked` why it can't serve.
    """

    active: PlanRecord
    optimal: Plan
    pinned: Best | None
    regret_ratio: float | None
    drift: Drift
    moved_from: int | None
    blocked: str | None
    reasons: tuple[PublishReason, ...]


def choose(
    last: Recommendation | None,
    workload: Workload,
    evidence: Evidence,
    config: ReplanConfig,
    *,
    may_shrink: bool,
) -> Choice | Infeasible:
    """Choose the active plan for a workload with requests in it."""
    optimal = plan(workload, config.request)
    before = None if last is None else last.active
    if last is None or before is None:
        return optimal if isinstance(optimal, Infeasible) else _first(optimal, evidence, config)
    may_stay = can_stay(before, config.request)
    pinned = best(workload, config.request, before.boundary_tokens) if may_stay else None
    if isinstance(optimal, Infeasible):
        # The pinned boundary is among the free ones, so it is infeasible too.
        return optimal
    if pinned is None:
        if not may_stay:
            return _move(before, optimal, evidence, PublishReason.CONFIGURATION_CHANGED)
        why = plan_pinned(workload, config.request, before.boundary_tokens)
        return _move(
            before,
            optimal,
            evidence,
            PublishReason.PINNED_BOUNDARY_INFEASIBLE,
            blocked=why.message if isinstance(why, Infeasible) else None,
        )
    regret = regret_ratio(pinned.cost_per_h, optimal.minimised_per_h)
    lasting = min(regret, _regret_at_higher_load(before, regret, workload, config))
    drift = observe_regret(config.drift, last.drift, lasting, evidence)
    if is_confirmed(config.drift, drift):
        return _move(before, optimal, evidence, PublishReason.DRIFT_DETECTED, pinned, regret)
    active = _stay(before, pinned, workload, config, may_shrink=may_shrink)
    return Choice(
        active=active,
        optimal=optimal,
        pinned=pinned,
        regret_ratio=regret,
        drift=drift,
        moved_from=None,
        blocked=None,
        reasons=_changes(before, active) + _drift_reasons(last.drift, drift),
    )


def _first(optimal: Plan, evidence: Evidence, config: ReplanConfig) -> Choice:
    drift = observe_regret(config.drift, NO_DRIFT, 0.0, evidence)
    return Choice(
        active=plan_record(optimal),
        optimal=optimal,
        pinned=None,
        regret_ratio=0.0,
        drift=drift,
        moved_from=None,
        blocked=None,
        reasons=(PublishReason.FIRST_PLAN, *_drift_reasons(NO_DRIFT, drift)),
    )


def _move(
    before: PlanRecord,
    optimal: Plan,
    evidence: Evidence,
    reason: PublishReason,
    pinned: Best | None = None,
    regret: float | None = None,
    blocked: str | None = None,
) -> Choice:
    active = plan_record(optimal)
    drift = Drift(
        state=DriftState.MOVED,
        windows_in_row=0,
        counted_to_s=evidence.window_to_s,
        text=f"moved from {before.boundary_tokens} to {optimal.boundary_tokens} tokens",
    )
    return Choice(
        active=active,
        optimal=optimal,
        pinned=pinned,
        regret_ratio=regret,
        drift=drift,
        moved_from=before.boundary_tokens,
        blocked=blocked,
        reasons=(reason, PublishReason.BOUNDARY_MOVED, *_changes(before, active)),
    )


def _regret_at_higher_load(
    before: PlanRecord, regret: float, workload: Workload, config: ReplanConfig
) -> float:
    """Regret at the upper end of the dead band; whole replicas make that of a small fleet jump."""
    if regret <= config.drift.max_regret:
        return regret
    higher = config.at_higher_load(workload)
    pinned = best(higher, config.request, before.boundary_tokens)
    optimal = best(higher, config.request, None)
    if pinned is None or optimal is None:
        return regret
    return regret_ratio(pinned.cost_per_h, optimal.cost_per_h)


def _stay(
    before: PlanRecord,
    pinned: Best,
    workload: Workload,
    config: ReplanConfig,
    *,
    may_shrink: bool,
) -> PlanRecord:
    """The published fleet at its boundary, with the γ and the replicas that it should have."""
    boundary, request = before.boundary_tokens, config.request
    gamma, needed, higher = _gamma(before, pinned, workload, config)
    # One pool is reported as short, but its contexts are long: it runs the long pool's engine.
    short_engine = request.long_profile if before.long is None else request.short_profile
    short = _comparable(before.short, short_engine, request)
    long = _comparable(before.long, request.long_profile, request)
    if may_shrink and higher is not None:
        short = resize(short, needed.short_replicas, higher.short_replicas)
        long = resize(long, needed.long_replicas, higher.long_replicas)
    else:
        short, long = max(short, needed.short_replicas), max(long, needed.long_replicas)
    return record_at(workload, request, boundary, gamma, needed, (short, long))


def _gamma(
    before: PlanRecord, pinned: Best, workload: Workload, config: ReplanConfig
) -> tuple[float, Needed, Needed | None]:
    """γ, with what it needs now and at the upper end of the dead band.

    Another γ shifts load between the pools, and replicas take minutes to follow. So the
    published one stays until the best is cheaper by more than max_regret at both ends.
    """
    boundary, request = before.boundary_tokens, config.request
    higher = config.at_higher_load(workload)
    best_now, best_higher = pinned.needed, needed_at(higher, request, boundary, pinned.gamma)
    if before.gamma == pinned.gamma or before.gamma > request.gamma_max:
        return pinned.gamma, best_now, best_higher
    kept_now = needed_at(workload, request, boundary, before.gamma)
    kept_higher = needed_at(higher, request, boundary, before.gamma)
    if kept_now is None:
        return pinned.gamma, best_now, best_higher
    gains = [kept_now.cost_per_h / best_now.cost_per_h - 1.0]
    if kept_higher and best_higher:
        gains.append(kept_higher.cost_per_h / best_higher.cost_per_h - 1.0)
    if min(gains) > config.drift.max_regret:
        return pinned.gamma, best_now, best_higher
    return before.gamma, kept_now, kept_higher


def _comparable(pool: PoolRecord | None, engine: EngineProfile, request: PlanRequest) -> int:
    """Replicas published for the same engine; 0 where there is no such pool or engine."""
    if pool is None or pool.profile != engine.name:
        return 0
    limit = request.max_replicas
    return pool.replicas if limit is None else min(pool.replicas, limit)


def _changes(before: PlanRecord, active: PlanRecord) -> tuple[PublishReason, ...]:
    now = (active.short.replicas, active.long_replicas)
    earlier = (before.short.replicas, before.long_replicas)
    pairs = list(zip(now, earlier, strict=True))
    pools = [active.short] if active.long is None else [active.short, active.long]
    found = {
        PublishReason.GAMMA_CHANGED: active.gamma != before.gamma,
        PublishReason.REPLICAS_GREW: any(new > old for new, old in pairs),
        PublishReason.REPLICAS_SHRANK: any(new < old for new, old in pairs),
        PublishReason.REPLICAS_HELD_IN_DEAD_BAND: any(
            p.replicas > p.needed_replicas for p in pools
        ),
    }
    return tuple(reason for reason, holds in found.items() if holds)


def _drift_reasons(before: Drift, now: Drift) -> tuple[PublishReason, ...]:
    if now.state is DriftState.INSUFFICIENT_DATA:
        return (PublishReason.INSUFFICIENT_DATA,)
    if now.state is DriftState.SUSPECTED:
        return (PublishReason.DRIFT_SUSPECTED,)
    was_drifting = before.state in (DriftState.SUSPECTED, DriftState.MOVED)
    if now.state is DriftState.NONE and was_drifting:
        return (PublishReason.DRIFT_CLEARED,)
    return ()
