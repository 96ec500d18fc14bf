"""Whether pools answer as their engine profiles say, and which measurement would tell why not.

Observed P99 TTFT is held against what the planner predicts for the published replicas at the mean
rate, for engines up to a factor faster or slower than their profile. It can't tell a wrong profile
from a missing replica, a cold cache or a queue in the gateway; the texts say so.
"""

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleetopt.planner.alerts import Alerts, Told, is_firing, raise_alert, resolve
from fleetopt.planner.drift import DriftRule
from fleetopt.planner.effects import RaiseAlert
from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.figures import fleet_at
from fleetopt.planner.outcome import PoolPlan
from fleetopt.planner.profile_effects import FIGURES, worsened
from fleetopt.planner.recommendation import (
    AlertKind,
    CheckState,
    Evidence,
    PlanRecord,
    ProfileCheck,
)
from fleetopt.planner.request import PlanRequest
from fleetopt.planner.sieve.predict import at_speed
from fleetopt.planner.ttft_counts import POOLS, TtftCounts, ttft_quantile_s
from fleetopt.planner.workload import Workload

SPEED_ERROR: Final = 1.1
"""Factor by which a profile may be off before it is doubted: the catalogue's fits are within."""

OVERSTATED: Final = 1.2
"""Predicted P99s lie up to 20 % above simulated ones (docs/validation.md)."""

MIN_REQUESTS: Final = 500
"""With fewer, a pool's P99 is not judged."""

_STEP: Final = 1.1
_LONGEST_S: Final = 1e6

Checks = tuple[ProfileCheck, ...]


def check_profiles(
    before: Checks,
    active: PlanRecord,
    workload: Workload,
    evidence: Evidence,
    ttfts: TtftCounts | None,
    request: PlanRequest,
    rule: DriftRule,
) -> Checks:
    """Hold what each pool's requests waited against what the active plan predicts.

    Parameters
    ----------
    before : tuple of ProfileCheck
        Of the last publication.
    active : PlanRecord
        The fleet that served these requests: the one published before.
    workload, evidence
        The window's.
    ttfts : TtftCounts or None
        Of the window; None where logs don't say.
    request : PlanRequest
        Engines and target.
    rule : DriftRule
        When a window counts as another one, and how many must agree.
    """
    if ttfts is None or evidence.mean_arrival_rate_per_s <= 0.0:
        return ()
    pools = (active.short,) if active.long is None else (active.short, active.long)
    engines = [
        request.long_profile if active.long is None else request.short_profile,
        request.long_profile,
    ]
    mean = workload.scaled_to(evidence.mean_arrival_rate_per_s)
    slow, fast = (
        _predicted(mean, _at_speed(request, speed), active)
        for speed in (1.0 / SPEED_ERROR, SPEED_ERROR)
    )
    found = []
    for at, pool in enumerate(pools):
        counts: NDArray[np.int64] = ttfts[at]
        observed_s = ttft_quantile_s(counts, 0.99)
        if observed_s is None or engines[at].name != pool.profile:
            continue
        low_s, high_s = fast[at].ttft_p99_s / OVERSTATED, min(slow[at].ttft_p99_s, _LONGEST_S)
        found.append(
            _judged(
                ProfileCheck(
                    pool=POOLS[at],
                    profile=pool.profile,
                    requests=int(counts.sum()),
                    observed_ttft_p99_s=observed_s,
                    predicted_low_s=low_s,
                    predicted_high_s=high_s,
                    state=CheckState.UNKNOWN,
                    windows_in_row=0,
                    counted_to_s=None,
                    measurement=None,
                ),
                next((one for one in before if one.pool == POOLS[at]), None),
                evidence,
                rule,
            )
        )
    return tuple(
        replace(one, measurement=worth_measuring(one, active, mean, request))
        if one.state is CheckState.OUTSIDE
        else one
        for one in found
    )


def _judged(
    now: ProfileCheck, before: ProfileCheck | None, evidence: Evidence, rule: DriftRule
) -> ProfileCheck:
    """Count this window for or against the profile; several in a row must agree."""
    if now.requests < MIN_REQUESTS:
        return now
    if now.predicted_low_s <= now.observed_ttft_p99_s <= now.predicted_high_s:
        return replace(now, state=CheckState.INSIDE)
    row, counted = (0, None) if before is None else (before.windows_in_row, before.counted_to_s)
    end_s = evidence.window_to_s
    if not row or counted is None or end_s - counted >= rule.confirm_advance_s:
        row, counted = row + 1, end_s
    is_confirmed = row >= rule.confirm_windows
    state = CheckState.OUTSIDE if is_confirmed else CheckState.SUSPECTED
    return replace(now, state=state, windows_in_row=row, counted_to_s=counted)


def worth_measuring(
    check: ProfileCheck, active: PlanRecord, workload: Workload, request: PlanRequest
) -> str:
    """Return the one measurement that tells most: of the figure that moves this P99 most."""
    at = POOLS.index(check.pool)
    is_one = active.long is None
    engine = request.long_profile if is_one or at else request.short_profile
    pool = _predicted(workload, request, active)[at]
    moves: dict[str, float] = {}
    for figure in FIGURES:
        worse = worsened(engine, figure, _STEP)
        if worse is not None:
            changed = _with_engine(request, at, worse, is_one=is_one)
            then_s = _predicted(workload, changed, active)[at].ttft_p99_s
            moves[figure] = abs(min(then_s, _LONGEST_S) - pool.ttft_p99_s)
    figure = max(moves, key=lambda name: moves[name])
    return f"{figure} of {engine.name}: {_how(figure, pool, workload)}"


def _how(figure: str, pool: PoolPlan, workload: Workload) -> str:
    mean = workload.moments.values.sum(axis=(0, 1))
    prompt = round(float(mean[1] / max(mean[0], 1.0)))
    if figure.startswith("prefill"):
        return f"time the prefill of prompts around {prompt:,} tokens, alone and in chunks"
    if figure == "kv_capacity_tokens":
        return "read the KV cache size that the engine logs when it starts"
    running = max(1, round(pool.slot_occupancy * pool.max_num_seqs))
    return f"time decode iterations of about {running} sequences with {prompt:,} tokens each"


def _predicted(
    workload: Workload, request: PlanRequest, active: PlanRecord
) -> tuple[PoolPlan, ...]:
    replicas = (active.short.replicas, active.long_replicas)
    boundary = request.long_context_tokens if active.long is None else active.boundary_tokens
    return fleet_at(workload, request, boundary, active.gamma, replicas).pools


def _at_speed(request: PlanRequest, speed: float) -> PlanRequest:
    short = at_speed(request.short_profile, speed)
    is_one = request.short_profile is request.long_profile
    return replace(
        request,
        short_profile=short,
        long_profile=short if is_one else at_speed(request.long_profile, speed),
    )


def _with_engine(
    request: PlanRequest, at: int, engine: EngineProfile, *, is_one: bool
) -> PlanRequest:
    if is_one or request.short_profile is request.long_profile:
        return replace(request, short_profile=engine, long_profile=engine)
    return replace(request, long_profile=engine) if at else replace(request, short_profile=engine)


def after_checks(alerts: Alerts, checks: Checks, fleet: str, now_s: float) -> tuple[Alerts, Told]:
    """Alerts after a step: told once while a pool is outside, and resolved when none is."""
    outside = [one for one in checks if one.state is CheckState.OUTSIDE]
    if not outside:
        if (
            any(one.state in (CheckState.UNKNOWN, CheckState.SUSPECTED) for one in checks)
            or not checks
        ):
            return alerts, ()
        return resolve(alerts, AlertKind.PROFILE_MISMATCH)
    if is_firing(alerts, AlertKind.PROFILE_MISMATCH):
        return alerts, ()
    alert = mismatch_alert(outside[0], fleet)
    return raise_alert(alerts, alert, now_s), (alert,)


def mismatch_alert(check: ProfileCheck, fleet: str) -> RaiseAlert:
    """A pool answers otherwise than its profile says."""
    slower = check.observed_ttft_p99_s > check.predicted_high_s
    why = (
        "or a replica is missing, caches are cold, or requests queue before the engine"
        if slower
        else "or its replicas are more than published"
    )
    return RaiseAlert(
        AlertKind.PROFILE_MISMATCH,
        f"fleet {fleet}: P99 TTFT of the {check.pool} pool is {check.observed_ttft_p99_s:.3g} s; "
        f"{check.profile} predicts {check.predicted_low_s:.3g} to {check.predicted_high_s:.3g} s. "
        f"The profile is wrong, {why}. Worth measuring: {check.measurement}",
        (
            ("pool", check.pool),
            ("profile", check.profile),
            ("observed_ttft_p99_s", check.observed_ttft_p99_s),
            ("predicted_low_s", check.predicted_low_s),
            ("predicted_high_s", check.predicted_high_s),
            ("measurement", check.measurement or ""),
        ),
    )
