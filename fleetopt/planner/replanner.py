"""The replanner's state machine: (state, event, now_s) → (state, effects).

Owns what is published when. It reads no clock and does nothing itself. Its whole state is the
last publication, so that another owner can go on where one stopped.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fleetopt.errors import InputError
from fleetopt.planner.alerts import (
    Told,
    after_infeasible,
    after_plan,
    is_firing,
    raise_alert,
    resolve,
    silence_alert,
)
from fleetopt.planner.choice import Choice, ReplanConfig, choose
from fleetopt.planner.drift import NO_DRIFT, pool_loads
from fleetopt.planner.effects import (
    Effect,
    Event,
    Idle,
    Observed,
    Publish,
    RaiseAlert,
    ResolveAlert,
    Silent,
    Trigger,
)
from fleetopt.planner.outcome import Infeasible
from fleetopt.planner.profile_check import after_checks, check_profiles
from fleetopt.planner.profile_effects import profile_effects
from fleetopt.planner.recommendation import (
    AlertKind,
    BaselineRecord,
    BytesPerToken,
    Confidence,
    Drift,
    Evidence,
    FiringAlert,
    InfeasibleRecord,
    Lengths,
    PlanRecord,
    ProfileCheck,
    ProfileEffect,
    PublishReason,
    Recommendation,
    Status,
)
from fleetopt.planner.record import (
    baseline_records,
    compression_record,
    infeasible_record,
    lengths_of,
    plan_record,
)
from fleetopt.planner.request import PlanRequest
from fleetopt.planner.ttft_counts import TtftCounts
from fleetopt.planner.workload import Workload

__all__ = [
    "Effect",
    "Event",
    "Idle",
    "Observed",
    "Publish",
    "RaiseAlert",
    "ReplanConfig",
    "ReplannerState",
    "ResolveAlert",
    "Silent",
    "Trigger",
    "overloaded",
    "resume",
    "step",
]

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class ReplannerState:
    """The last publication, None before the first, and the alerts that fire."""

    last: Recommendation | None = None
    alerts: tuple[FiringAlert, ...] = ()


def resume(recommendation: Recommendation | None) -> ReplannerState:
    """State of an owner that takes over after this publication."""
    if recommendation is None:
        return ReplannerState()
    return ReplannerState(recommendation, recommendation.alerts)


def step(
    state: ReplannerState, event: Event, now_s: float, config: ReplanConfig
) -> tuple[ReplannerState, tuple[Effect, ...]]:
    """Take one event in.

    Parameters
    ----------
    state : ReplannerState
        From the step before, or from `resume`.
    event : Observed, Idle or Silent
        What is known of the traffic.
    now_s : float
        Epoch seconds.
    config : ReplanConfig
        May differ from the step before: the plan then follows it.

    Returns
    -------
    ReplannerState, tuple of effects
        An interval event with requests always publishes. A load event publishes where counts,
        boundary, γ, status or alerts change, and only ever adds replicas at the same boundary.
        Unknown traffic publishes once, when it becomes unknown; idle traffic each time, with the
        last counts, which are good for less. A publication comes first.

    Raises
    ------
    InputError
        If a workload comes without evidence, or the state is another fleet's.
    """
    if state.last is not None and state.last.fleet != config.fleet:
        raise InputError(
            f"the last recommendation is of fleet {state.last.fleet!r}, but the configuration "
            f"of {config.fleet!r}; resume a fleet from its own recommendation"
        )
    if isinstance(event, Silent):
        return _silent(state, event.since_s, now_s, config)
    if isinstance(event, Idle):
        return _idle(state, event.evidence, now_s, config)
    if event.workload is None or event.workload.moments.count == 0.0:
        # A fleet that starts up has no data yet; that is no reason to alert anybody.
        return (state, ()) if state.last is None else _silent(state, None, now_s, config)
    if event.evidence is None:
        raise InputError(f"fleet {config.fleet!r}: a workload was observed without its evidence")
    lengths = event.lengths or lengths_of(event.workload)
    window = _Window(
        event.workload, event.evidence, lengths, event.bytes_per_token, event.ttfts, now_s
    )
    return _replan(state, event, window, config)


def overloaded(state: ReplannerState, workload: Workload | None, request: PlanRequest) -> bool:
    """Whether a pool's utilisation at the published replicas exceeds its limit."""
    active = None if state.last is None else state.last.active
    if active is None or workload is None or workload.moments.count == 0.0:
        return False
    loads = pool_loads(active, workload, request)
    limit = request.max_utilization * (1.0 + _ROUNDING)
    return loads is not None and any(load > limit for load in loads)


@dataclass(frozen=True, slots=True)
class _Window:
    """Requests that were observed, and when they are planned for."""

    workload: Workload
    evidence: Evidence
    lengths: Lengths
    bytes_per_token: Mapping[str, BytesPerToken]
    ttfts: TtftCounts | None
    now_s: float


def _silent(
    state: ReplannerState, since_s: float | None, now_s: float, config: ReplanConfig
) -> tuple[ReplannerState, tuple[Effect, ...]]:
    last = state.last
    if is_firing(state.alerts, AlertKind.TRAFFIC_UNKNOWN):
        return state, ()
    alert = silence_alert(config.fleet, since_s)
    alerts = raise_alert(state.alerts, alert, now_s)
    if last is None:
        return replace(state, alerts=alerts), (alert,)
    held = (PublishReason.HELD_LAST_PLAN,) if last.active else ()
    recommendation = replace(
        last,
        revision=last.revision + 1,
        status=Status.STALE if last.active else Status.INFEASIBLE,
        published_at_s=now_s,
        reasons=(PublishReason.TRAFFIC_UNKNOWN, *held),
        alerts=alerts,
    )
    return resume(recommendation), (Publish(recommendation), alert)


def _idle(
    state: ReplannerState, evidence: Evidence, now_s: float, config: ReplanConfig
) -> tuple[ReplannerState, tuple[Effect, ...]]:
    last = state.last
    if last is None or last.active is None:
        return state, ()
    alerts, told = resolve(state.alerts, AlertKind.TRAFFIC_UNKNOWN)
    recommendation = replace(
        last,
        revision=last.revision + 1,
        status=Status.INFEASIBLE if last.infeasible else Status.OK,
        published_at_s=now_s,
        valid_until_s=now_s + config.valid_for_s,
        reasons=(
            PublishReason.INTERVAL,
            PublishReason.IDLE_CONFIRMED,
            PublishReason.HELD_LAST_PLAN,
        ),
        confidence=Confidence.LOW,
        evidence=evidence,
        alerts=alerts,
    )
    return resume(recommendation), (Publish(recommendation), *told)


def _replan(
    state: ReplannerState, event: Observed, window: _Window, config: ReplanConfig
) -> tuple[ReplannerState, tuple[Effect, ...]]:
    is_load = event.trigger is Trigger.LOAD
    choice = choose(state.last, window.workload, window.evidence, config, may_shrink=not is_load)
    cause = [PublishReason.LOAD_CROSSED_LIMIT if is_load else PublishReason.INTERVAL]
    if is_firing(state.alerts, AlertKind.TRAFFIC_UNKNOWN):
        cause.append(PublishReason.TRAFFIC_RETURNED)
    if isinstance(choice, Infeasible):
        recommendation, told = _infeasible(state, choice, cause, window, config)
    else:
        recommendation, told = _feasible(state, choice, cause, window, config)
    if is_load and state.last and _headline(state.last) == _headline(recommendation):
        return state, ()
    return resume(recommendation), (Publish(recommendation), *told)


def _feasible(
    state: ReplannerState,
    choice: Choice,
    cause: list[PublishReason],
    window: _Window,
    config: ReplanConfig,
) -> tuple[Recommendation, Told]:
    last, lengths = state.last, window.lengths
    if is_firing(state.alerts, AlertKind.SLO_INFEASIBLE):
        cause = [*cause, PublishReason.SLO_FEASIBLE_AGAIN]
    alerts, told = after_plan(
        state.alerts,
        last,
        choice,
        lengths,
        window.workload,
        window.evidence,
        window.now_s,
        config,
    )
    checks: tuple[ProfileCheck, ...] = ()
    if last is not None and last.active is not None and choice.moved_from is None:
        checks = check_profiles(
            last.profile_checks,
            last.active,
            window.workload,
            window.evidence,
            window.ttfts,
            config.request,
            config.drift,
        )
    alerts, doubts = after_checks(alerts, checks, config.fleet, window.now_s)
    is_pinned = last is not None and last.active is not None and choice.moved_from is None
    body = _Body(
        status=Status.OK,
        reasons=(*cause, *choice.reasons),
        active=choice.active,
        optimal=plan_record(choice.optimal),
        regret_ratio=choice.regret_ratio,
        boundary_since_s=last.boundary_since_s if last and is_pinned else window.now_s,
        boundary_lengths=last.boundary_lengths if last and is_pinned else lengths,
        drift=choice.drift,
        baselines=baseline_records(choice.optimal.baselines, choice.active),
        infeasible=None,
        alerts=alerts,
        depends_on=_effects(last, choice, window, config),
        profile_checks=checks,
    )
    return _recommendation(last, body, window, config), (*told, *doubts)


def _effects(
    last: Recommendation | None, choice: Choice, window: _Window, config: ReplanConfig
) -> tuple[ProfileEffect, ...]:
    """What the plan depends on; looked at again when the fleet is another one."""
    before = None if last is None else last.active
    if last is not None and before is not None and last.depends_on:
        same = (before.boundary_tokens, before.gamma, before.short.replicas, before.long_replicas)
        now = choice.active
        if same == (now.boundary_tokens, now.gamma, now.short.replicas, now.long_replicas):
            return last.depends_on
    return profile_effects(window.workload, config.request, choice.active.boundary_tokens)


def _infeasible(
    state: ReplannerState,
    found: Infeasible,
    cause: list[PublishReason],
    window: _Window,
    config: ReplanConfig,
) -> tuple[Recommendation, Told]:
    """No fleet will do: the last good counts stay, since fewer would be worse still."""
    last, record = state.last, infeasible_record(found)
    held = (PublishReason.HELD_LAST_PLAN,) if last and last.active else ()
    alerts, told = after_infeasible(state.alerts, last, record, config.fleet, window.now_s)
    body = _Body(
        status=Status.INFEASIBLE,
        reasons=(*cause, PublishReason.SLO_INFEASIBLE, *held),
        active=last.active if last else None,
        optimal=None,
        regret_ratio=None,
        boundary_since_s=last.boundary_since_s if last else None,
        boundary_lengths=last.boundary_lengths if last else None,
        drift=last.drift if last else NO_DRIFT,
        baselines=(),
        infeasible=record,
        alerts=alerts,
    )
    return _recommendation(last, body, window, config), told


@dataclass(frozen=True, slots=True, kw_only=True)
class _Body:
    """What a plan and the lack of one fill in differently."""

    status: Status
    reasons: tuple[PublishReason, ...]
    active: PlanRecord | None
    optimal: PlanRecord | None
    regret_ratio: float | None
    boundary_since_s: float | None
    boundary_lengths: Lengths | None
    drift: Drift
    baselines: tuple[BaselineRecord, ...]
    infeasible: InfeasibleRecord | None
    alerts: tuple[FiringAlert, ...]
    depends_on: tuple[ProfileEffect, ...] = ()
    profile_checks: tuple[ProfileCheck, ...] = ()


def _recommendation(
    last: Recommendation | None,
    body: _Body,
    window: _Window,
    config: ReplanConfig,
) -> Recommendation:
    active = body.active
    is_enough = window.evidence.sample_count >= config.drift.min_samples
    return Recommendation(
        fleet=config.fleet,
        revision=last.revision + 1 if last else 1,
        status=body.status,
        published_at_s=window.now_s,
        computed_at_s=window.now_s,
        valid_until_s=window.now_s + config.valid_for_s,
        reasons=body.reasons,
        confidence=Confidence.NORMAL if is_enough else Confidence.LOW,
        evidence=window.evidence,
        lengths=window.lengths,
        active=active,
        optimal=body.optimal,
        regret_ratio=body.regret_ratio,
        boundary_since_s=body.boundary_since_s,
        boundary_lengths=body.boundary_lengths,
        drift=body.drift,
        baselines=body.baselines,
        infeasible=body.infeasible,
        alerts=body.alerts,
        boundary_tokens=active.boundary_tokens if active else None,
        gamma=active.gamma if active else None,
        compress_up_to_tokens=active.compress_up_to_tokens if active else None,
        short_replicas=active.short.replicas if active else None,
        long_replicas=active.long_replicas if active else None,
        cost_usd_per_h=active.cost_usd_per_h if active else None,
        bytes_per_token=dict(window.bytes_per_token),
        compression=compression_record(window.workload.outcomes),
        depends_on=body.depends_on,
        profile_checks=body.profile_checks,
    )


def _headline(recommendation: Recommendation) -> tuple[object, ...]:
    """What a reader acts on; a load event that changes none of it is not worth a revision."""
    infeasible = recommendation.infeasible
    return (
        recommendation.status,
        infeasible.reason if infeasible else None,
        {alert.kind for alert in recommendation.alerts},
        recommendation.boundary_tokens,
        recommendation.gamma,
        recommendation.short_replicas,
        recommendation.long_replicas,
    )
