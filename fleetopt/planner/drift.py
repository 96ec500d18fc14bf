"""When to leave what is running: regret of the pinned boundary, and the dead band of replicas.

Owns the rules and their defaults. A distance between length distributions is no trigger: the
long pool overloads at a shift of 0.1 % of the traffic, and far larger shifts may cost nothing.
Regret is the distance that counts, in money.
"""

import math
from dataclasses import dataclass

from fleetopt.errors import ConfigError, InputError
from fleetopt.planner.bins import nearest_edges
from fleetopt.planner.plan import loads
from fleetopt.planner.recommendation import Drift, DriftState, Evidence, PlanRecord
from fleetopt.planner.request import PlanRequest
from fleetopt.planner.workload import Workload

NO_DRIFT = Drift(state=DriftState.NONE, windows_in_row=0, counted_to_s=None, text="")


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftRule:
    """When the regret of a pinned boundary is drift.

    Parameters
    ----------
    max_regret : float
        Regret above this counts, as a share of the best plan's cost.
    min_samples : int
        Requests in the window below which nothing is concluded: regret has a sampling noise of
        3.3 % (p95) at 300 requests and of 0.55 % at 1,500.
    confirm_windows : int
        Windows in a row that must agree.
    confirm_advance_s : float
        A window counts as another one when it ends at least this long after the last one that
        counted: one slice or more. Plans are made more often than slices close, and two plans
        on the same data are one piece of evidence.

    Raises
    ------
    ConfigError
        If a value is out of range.
    """

    max_regret: float = 0.03
    min_samples: int = 1_500
    confirm_windows: int = 2
    confirm_advance_s: float = 60.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.max_regret) and self.max_regret > 0.0):
            raise ConfigError(
                f"max_drift_regret is {self.max_regret}; expected a finite number > 0"
            )
        if not (math.isfinite(self.confirm_advance_s) and self.confirm_advance_s > 0.0):
            raise ConfigError(
                f"drift confirm_advance_s is {self.confirm_advance_s}; expected a finite number > 0"
            )
        for name in ("min_samples", "confirm_windows"):
            if getattr(self, name) < 1:
                raise ConfigError(f"drift {name} is {getattr(self, name)}; expected ≥ 1")


def regret_ratio(pinned_per_h: float, optimal_per_h: float) -> float:
    """Share that the best plan at the pinned boundary costs above the best plan of all.

    Parameters
    ----------
    pinned_per_h : float
        Cost of the best γ and counts at the pinned boundary, ≥ 0.
    optimal_per_h : float
        Cost of the best boundary, γ and counts, > 0.

    Returns
    -------
    float
        ≥ 0. Exactly 0 where rounding puts the pinned plan below the other.

    Raises
    ------
    InputError
        If a cost is not finite or out of range.

    Examples
    --------
    >>> round(regret_ratio(103.0, 100.0), 6)
    0.03
    """
    if not (math.isfinite(pinned_per_h) and pinned_per_h >= 0.0):
        raise InputError(f"pinned cost is {pinned_per_h}/h; expected a finite number ≥ 0")
    if not (math.isfinite(optimal_per_h) and optimal_per_h > 0.0):
        raise InputError(f"optimal cost is {optimal_per_h}/h; expected a finite number > 0")
    return max(0.0, pinned_per_h / optimal_per_h - 1.0)


def observe_regret(rule: DriftRule, before: Drift, regret: float, evidence: Evidence) -> Drift:
    """Count one window for or against drift.

    Parameters
    ----------
    rule : DriftRule
        When regret is drift.
    before : Drift
        What the windows so far say.
    regret : float
        Regret of the pinned boundary in this window, ≥ 0.
    evidence : Evidence
        The window: its end and sample count.

    Returns
    -------
    Drift
        `windows_in_row` has risen by one when this window is over the limit and counts as
        another one; it is 0 when the window is under the limit or holds too few requests.
        A boundary that has just moved stays `moved` until another window is seen.
    """
    if evidence.sample_count < rule.min_samples:
        return Drift(
            state=DriftState.INSUFFICIENT_DATA,
            windows_in_row=0,
            counted_to_s=before.counted_to_s,
            text=f"{evidence.sample_count} requests in the window; {rule.min_samples} are needed "
            "to judge the boundary",
        )
    is_another = is_another_window(rule, before, evidence)
    if before.state is DriftState.MOVED and not is_another:
        return before
    if regret <= rule.max_regret:
        return Drift(
            state=DriftState.NONE,
            windows_in_row=0,
            counted_to_s=before.counted_to_s,
            text=f"staying costs {regret:.1%} more than moving; the limit is {rule.max_regret:.1%}",
        )
    row = before.windows_in_row
    is_counted = row == 0 or is_another
    row += int(is_counted)
    return Drift(
        state=DriftState.SUSPECTED,
        windows_in_row=row,
        counted_to_s=evidence.window_to_s if is_counted else before.counted_to_s,
        text=f"staying costs {regret:.1%} more than moving, over the limit of "
        f"{rule.max_regret:.1%}, in {row} of {rule.confirm_windows} windows in a row",
    )


def is_confirmed(rule: DriftRule, drift: Drift) -> bool:
    """Whether enough windows in a row agree that the boundary should move."""
    return drift.windows_in_row >= rule.confirm_windows


def is_another_window(rule: DriftRule, before: Drift, evidence: Evidence) -> bool:
    """Whether the window ends late enough after the last one that counted."""
    if before.counted_to_s is None:
        return True
    return evidence.window_to_s - before.counted_to_s >= rule.confirm_advance_s


def resize(published: int, needed: int, needed_at_higher_load: int) -> int:
    """Replicas to publish for one pool: up at once, down only out of the dead band.

    A replica is given up when the rest would do even at the higher load, which is the present
    one times max_utilization / shrink_utilization (0.85 / 0.75). For a pool that utilisation
    sizes, that is: one replica fewer would run below shrink_utilization. So a load that
    swings by less than that ratio never makes a pool grow and shrink in turn, whichever
    constraint sizes it and however small it is.

    Parameters
    ----------
    published, needed, needed_at_higher_load : int
        Replicas published now, needed at the present load, and needed at the higher load.

    Returns
    -------
    int
        At least `needed`, at most the larger of `published` and `needed`.

    Examples
    --------
    >>> resize(10, 11, 13), resize(10, 9, 10), resize(10, 8, 9)
    (11, 10, 8)
    """
    if needed >= published or needed_at_higher_load < published:
        return needed
    return published


def can_stay(active: PlanRecord, request: PlanRequest) -> bool:
    """Whether the boundary is still a possible one; a new long context may rule it out."""
    boundary, longest = active.boundary_tokens, request.long_context_tokens
    if active.long is None:
        return boundary == longest
    return boundary < longest and nearest_edges(boundary) == (boundary,)


def pool_loads(
    active: PlanRecord, workload: Workload, request: PlanRequest
) -> tuple[float, ...] | None:
    """Utilisation of each published pool under this workload, None where B is ruled out.

    One value for a fleet of one pool, else the short and the long pool's.
    """
    if not can_stay(active, request):
        return None
    both = loads(
        workload,
        request,
        active.boundary_tokens,
        active.gamma,
        active.short.replicas,
        active.long_replicas,
    )
    return both[:1] if active.long is None else both
