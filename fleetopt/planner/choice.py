"""Which plan becomes the active one: the pinned boundary's, or the best one's after a move.

Owns the three time scales: γ changes at once, replicas through the dead band, the boundary only
on confirmed drift or when the pinned one can no longer serve.
"""

import math
from dataclasses import dataclass, field, replace
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
from fleetopt.planner.outcome import Infeasible, Plan, PoolPlan
from fleetopt.planner.plan import plan, plan_pinned, search
from fleetopt.planner.recommendation import (
    Drift,
    DriftState,
    Evidence,
    PlanRecord,
    PoolRecord,
    PublishReason,
    Recommendation,
)
from fleetopt.planner.record import plan_record, with_replicas
from fleetopt.planner.request import PlanRequest
from fleetopt.planner.workload import Workload

_DEAD_BAND: Final = 0.75 / 0.85
_ROUNDING: Final = 1e-9


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The plan to publish and how it came about.

    `pinned` is the best plan at the boundary published until now, None where there is none;
    `moved_from` that boundary where this choice leaves it, and `blocked` why it can't serve.
    """

    active: PlanRecord
    optimal: Plan
    pinned: Plan | None
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
    pinned = (
        plan_pinned(workload, config.request, before.boundary_tokens)
        if can_stay(before, config.request)
        else None
    )
    if isinstance(pinned, Plan) and (
        isinstance(optimal, Infeasible) or pinned.cost_usd_per_h < optimal.cost_usd_per_h
    ):
        optimal = pinned
    if isinstance(optimal, Infeasible):
        return optimal
    if pinned is None:
        return _move(before, optimal, None, None, evidence, PublishReason.CONFIGURATION_CHANGED)
    if isinstance(pinned, Infeasible):
        reason = PublishReason.PINNED_BOUNDARY_INFEASIBLE
        return _move(before, optimal, pinned, None, evidence, reason)
    regret = regret_ratio(pinned.cost_usd_per_h, optimal.cost_usd_per_h)
    drift = observe_regret(config.drift, last.drift, regret, evidence)
    if is_confirmed(config.drift, drift):
        return _move(before, optimal, pinned, regret, evidence, PublishReason.DRIFT_DETECTED)
    active = _in_dead_band(before, pinned, workload, config, may_shrink=may_shrink)
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
    pinned: Plan | Infeasible | None,
    regret: float | None,
    evidence: Evidence,
    reason: PublishReason,
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
        pinned=pinned if isinstance(pinned, Plan) else None,
        regret_ratio=regret,
        drift=drift,
        moved_from=before.boundary_tokens,
        blocked=pinned.message if isinstance(pinned, Infeasible) else None,
        reasons=(reason, PublishReason.BOUNDARY_MOVED, *_changes(before, active)),
    )


def _in_dead_band(
    before: PlanRecord,
    needed: Plan,
    workload: Workload,
    config: ReplanConfig,
    *,
    may_shrink: bool,
) -> PlanRecord:
    """Record of the needed plan with the replicas that the dead band leaves published."""
    pools = [(needed.short, before.short), (needed.long, before.long)]
    published = [_comparable(now, earlier) for now, earlier in pools]
    wanted = [0 if now is None else now.replicas for now, _ in pools]
    if all(have <= want for have, want in zip(published, wanted, strict=True)):
        return plan_record(needed)
    if may_shrink:
        higher = _at_higher_load(needed, workload, config)
        wanted = [
            resize(have, want, high)
            for have, want, high in zip(published, wanted, higher, strict=True)
        ]
    else:
        wanted = [max(have, want) for have, want in zip(published, wanted, strict=True)]
    if config.request.max_replicas is not None:
        wanted = [min(count, config.request.max_replicas) for count in wanted]
    return with_replicas(plan_record(needed), *wanted)


def _comparable(now: PoolPlan | None, earlier: PoolRecord | None) -> int:
    """Replicas published for the same engine; 0 where the pool or its engine is another."""
    if now is None or earlier is None or now.profile != earlier.profile:
        return 0
    return earlier.replicas if now.context_tokens == earlier.context_tokens else 0


def _at_higher_load(needed: Plan, workload: Workload, config: ReplanConfig) -> tuple[float, float]:
    """Replicas of each pool at the load that a shrunk pool must still be fit for.

    The second plan sees waits and targets; utilisation, which is linear, guards against its
    having chosen another γ, which would shift load from one pool to the other.
    """
    ratio = config.dead_band_ratio
    request = replace(
        config.request, boundary_tokens=needed.boundary_tokens, gamma_max=needed.gamma
    )
    higher = search(workload.scaled_to(workload.arrival_rate_per_s * ratio), request)
    if higher is None:
        return math.inf, math.inf
    _, _, higher_short, higher_long = higher
    short = _by_utilization(needed.short, ratio, config.request)
    long = 0 if needed.long is None else _by_utilization(needed.long, ratio, config.request)
    return max(higher_short, short), max(higher_long, long)


def _by_utilization(pool: PoolPlan, ratio: float, request: PlanRequest) -> int:
    load = pool.utilization * pool.replicas * ratio  # in replicas provisioned
    return math.ceil(load / request.max_utilization - _ROUNDING)


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
