"""Alerts: what an operator is told when, in words and in figures.

Owns the texts and which alerts fire after a step; sending them is somebody else's work.
"""

from fleetopt.planner.choice import Choice, ReplanConfig
from fleetopt.planner.cost import CostUnit
from fleetopt.planner.drift import is_another_window, pool_loads
from fleetopt.planner.effects import Details, RaiseAlert, ResolveAlert
from fleetopt.planner.recommendation import (
    AlertKind,
    DriftState,
    Evidence,
    FiringAlert,
    InfeasibleRecord,
    Lengths,
    PlanRecord,
    Recommendation,
)
from fleetopt.planner.workload import Workload

Alerts = tuple[FiringAlert, ...]
Told = tuple[RaiseAlert | ResolveAlert, ...]


def is_firing(alerts: Alerts, kind: AlertKind) -> bool:
    """Whether an alert of this kind has been raised and not resolved."""
    return any(alert.kind is kind for alert in alerts)


def raise_alert(alerts: Alerts, raised: RaiseAlert, now_s: float) -> Alerts:
    """The alerts with this one, in place of an older one of its kind."""
    others = tuple(alert for alert in alerts if alert.kind is not raised.kind)
    return (*others, FiringAlert(kind=raised.kind, since_s=now_s, text=raised.text))


def resolve(alerts: Alerts, *kinds: AlertKind) -> tuple[Alerts, Told]:
    """The alerts without these kinds, and what to say about those that fired."""
    left = tuple(alert for alert in alerts if alert.kind not in kinds)
    return left, tuple(ResolveAlert(alert.kind) for alert in alerts if alert.kind in kinds)


def silence_alert(fleet: str, since_s: float | None) -> RaiseAlert:
    """Traffic is unknown."""
    since = "" if since_s is None else f" since {since_s:.0f} (epoch seconds)"
    return RaiseAlert(
        AlertKind.TRAFFIC_UNKNOWN,
        f"fleet {fleet}: traffic is unknown{since}; the last plan is held. "
        "Check that the gateway writes its request log and that the workers read it",
        () if since_s is None else (("since_s", since_s),),
    )


def after_infeasible(
    alerts: Alerts, last: Recommendation | None, found: InfeasibleRecord, fleet: str, now_s: float
) -> tuple[Alerts, Told]:
    """Alerts after a step that found no plan: told once for each reason."""
    alerts, told = resolve(alerts, AlertKind.TRAFFIC_UNKNOWN)
    before = None if last is None else last.infeasible
    is_known = before is not None and before.reason is found.reason
    if is_known and is_firing(alerts, AlertKind.SLO_INFEASIBLE):
        return alerts, told
    held = "the last counts are held" if last and last.active else "there are no counts to hold"
    alert = RaiseAlert(
        AlertKind.SLO_INFEASIBLE,
        f"fleet {fleet}: {found.text.rstrip('.')}; {held}",
        (
            ("reason", found.reason.value),
            *((("tightest_slo", found.tightest_slo),) if found.tightest_slo else ()),
        ),
    )
    return raise_alert(alerts, alert, now_s), (*told, alert)


def after_plan(
    alerts: Alerts,
    last: Recommendation | None,
    choice: Choice,
    lengths: Lengths,
    workload: Workload,
    evidence: Evidence,
    now_s: float,
    config: ReplanConfig,
) -> tuple[Alerts, Told]:
    """Alerts after a step that found a plan: a moved boundary is told, and cleared later."""
    alerts, told = resolve(alerts, AlertKind.TRAFFIC_UNKNOWN, AlertKind.SLO_INFEASIBLE)
    if last is None or last.active is None:
        return alerts, told
    if choice.moved_from is not None:
        alert = move_alert(last, last.active, choice, lengths, workload, config)
        return raise_alert(alerts, alert, now_s), (*told, alert)
    is_over = choice.drift.state in (DriftState.NONE, DriftState.INSUFFICIENT_DATA)
    if is_over and is_another_window(config.drift, last.drift, evidence):
        alerts, cleared = resolve(alerts, AlertKind.BOUNDARY_DRIFT)
        told = (*told, *cleared)
    return alerts, told


def move_alert(
    last: Recommendation,
    before: PlanRecord,
    choice: Choice,
    lengths: Lengths,
    workload: Workload,
    config: ReplanConfig,
) -> RaiseAlert:
    """The boundary moves: from where to where, why, what changed in the traffic, and the cost."""
    after = choice.active
    text = (
        f"fleet {config.fleet}: boundary moved from {before.boundary_tokens} to "
        f"{after.boundary_tokens} tokens: {_why(choice, config)}. "
        f"{_what_changed(last.boundary_lengths, lengths)}{_loads(before, workload, config)}"
        f"Pools from {_counts(before)} to {_counts(after)} replicas"
    )
    details: Details = (
        ("from_boundary_tokens", before.boundary_tokens),
        ("to_boundary_tokens", after.boundary_tokens),
        ("to_gamma", after.gamma),
        ("cost_usd_per_h", after.cost_usd_per_h),
        *_lengths_details("after", lengths),
    )
    if last.boundary_lengths is not None:
        details = (*details, *_lengths_details("before", last.boundary_lengths))
    if choice.pinned is None or choice.regret_ratio is None:
        return RaiseAlert(AlertKind.BOUNDARY_DRIFT, text, details)
    stay, go = choice.pinned.cost_per_h, choice.optimal.minimised_per_h
    unit = config.request.minimise
    name = "usd" if unit is CostUnit.USD else "carbon_kg"
    return RaiseAlert(
        AlertKind.BOUNDARY_DRIFT,
        f"{text}; for this traffic {go:.2f} {unit.per_h} instead of {stay:.2f} "
        f"({stay - go:.2f} {unit.per_h} saved)",
        (
            *details,
            ("regret_ratio", choice.regret_ratio),
            (f"stay_cost_{name}_per_h", stay),
            (f"saving_{name}_per_h", stay - go),
        ),
    )


def _why(choice: Choice, config: ReplanConfig) -> str:
    if choice.regret_ratio is not None:
        return (
            f"staying costs {choice.regret_ratio:.1%} more, over the limit of "
            f"{config.drift.max_regret:.1%} in {config.drift.confirm_windows} windows in a row"
        )
    if choice.blocked is not None:
        return f"the old boundary can no longer serve ({choice.blocked.rstrip('.')})"
    return "the configuration rules the old boundary out"


def _what_changed(before: Lengths | None, after: Lengths) -> str:
    now = _percentiles(after)
    then = "" if before is None else f"were {_percentiles(before)} when it was set, "
    return f"Tokens of a request (p50/p90/p99) {then}are {now} now. "


def _percentiles(lengths: Lengths) -> str:
    return f"{lengths.p50_tokens}/{lengths.p90_tokens}/{lengths.p99_tokens}"


def _loads(before: PlanRecord, workload: Workload, config: ReplanConfig) -> str:
    names = ("short", "long")
    loads = pool_loads(before, workload, config.request)
    if loads is None:
        return ""
    shown = ", ".join(f"{name} {load:.2f}" for name, load in zip(names, loads, strict=False))
    return f"Utilisation at the old boundary and counts: {shown}. "


def _counts(plan: PlanRecord) -> str:
    return f"{plan.short.replicas} short + {plan.long_replicas} long"


def _lengths_details(when: str, lengths: Lengths) -> Details:
    return (
        (f"p50_tokens_{when}", lengths.p50_tokens),
        (f"p90_tokens_{when}", lengths.p90_tokens),
        (f"p99_tokens_{when}", lengths.p99_tokens),
    )
