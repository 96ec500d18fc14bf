"""An explanation in words and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from fleetopt.cli.output import console, cost, percent, seconds, signed_percent, table, tokens
from fleetopt.cli.plan_text import BINDINGS, bullets
from fleetopt.cli.recommendation_text import effect_text
from fleetopt.planner.explain import FLAT_WITHIN, BoundaryCost, Explanation, Neighbour, Premise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from fleetopt.planner.cost import CostUnit
    from fleetopt.planner.plan import Plan, PlanRequest
    from fleetopt.planner.workload import Workload

BOUNDARIES_SHOWN: Final = 12
BAR_WIDTH: Final = 24
SAME_RATIO: Final = 1e-4
"""Savings below this share are rounding."""
PREMISES: Final[dict[Premise, str]] = {
    Premise.ARRIVAL_RATE: "requests/s",
    Premise.COMPRESSIBLE_SHARE: "compressible share",
    Premise.SLO_BASE: "target's base",
    Premise.E2E_BASE: "base end to end",
    Premise.GAP: "between tokens",
    Premise.CACHED_SHARE: "cached prompt tokens",
}


def explanation_json(why: Explanation) -> dict[str, Any]:
    """Return the explanation as `--output json` prints it: the whole curve."""
    built: dict[str, Any] = msgspec.to_builtins(why)
    return {**built, "is_flat": why.is_flat}


def describe_explanation(
    why: Explanation, plan: Plan, workload: Workload, request: PlanRequest
) -> None:
    """Print the explanation for a reader."""
    out = console()
    bullets(out, "What sets the size", _sizing(why, request))
    out.print()
    out.print(_curve(why, plan))
    bullets(out, "The boundary", _boundary(why, plan))
    out.print()
    out.print(_sensitivities(why, plan, workload, request))
    bullets(out, "The target", [_ten_ms(why)])
    bullets(out, "Profile figures that matter most", [effect_text(one) for one in why.depends_on])


def _sizing(why: Explanation, request: PlanRequest) -> list[str]:
    """Return a line a pool: the constraint that binds, and what the others would ask for."""
    lines = []
    for pool in why.pools:
        name = pool.name if len(why.pools) > 1 else "one pool"
        line = (
            f"{name}: {BINDINGS[pool.binding]} sets it to {tokens(pool.replicas)}; load at "
            f"{percent(request.max_utilization, 0)} alone asks for {tokens(pool.load_replicas)}"
        )
        if pool.min_replicas > 1:
            line += f", the minimum for {tokens(pool.min_replicas)}"
        lines.append(line)
    return lines


def _curve(why: Explanation, plan: Plan) -> Table:
    """Return the lowest cost at some boundaries, with bars to scale."""
    shown = table("split at", "gamma", "short", "long", why.unit.per_h, "more", "")
    shown.columns[0].justify = "right"
    shown.columns[-1].justify = "left"
    lowest = why.cheapest.cost_per_h
    highest = max(point.cost_per_h for point in why.curve)
    for point in _thinned(why.curve, plan.boundary_tokens):
        is_one_pool = point.long_replicas == 0
        bar = "█" * max(round(BAR_WIDTH * point.cost_per_h / highest), 1)
        shown.add_row(
            "one pool" if is_one_pool else tokens(point.boundary_tokens),
            f"{point.gamma:.2f}",
            "" if is_one_pool else tokens(point.short_replicas),
            tokens(point.short_replicas if is_one_pool else point.long_replicas),
            cost(point.cost_per_h, why.unit),
            percent(point.cost_per_h / lowest - 1.0),
            bar + (" ◄" if point.boundary_tokens == plan.boundary_tokens else ""),
        )
    return shown


def _thinned(curve: Sequence[BoundaryCost], chosen_tokens: int) -> list[BoundaryCost]:
    """Return a dozen points: the plan's, the cheapest, the last, and others evenly between."""
    first, last = 0, len(curve) - 1
    must = {at for at, one in enumerate(curve) if one.boundary_tokens == chosen_tokens}
    must |= {min(range(len(curve)), key=lambda at: curve[at].cost_per_h), last}
    spare = max(BOUNDARIES_SHOWN - len(must), 1)
    even = {first + round((last - first) * step / spare) for step in range(spare)}
    return [curve[at] for at in sorted(must | even)]


def _boundary(why: Explanation, plan: Plan) -> list[str]:
    lines = [curve_shape(why, plan)]
    saved = plan.minimised_per_h - why.cheapest.cost_per_h
    if saved > SAME_RATIO * plan.minimised_per_h:
        lines.append(
            f"at {tokens(why.cheapest.boundary_tokens)} instead it would cost "
            f"{cost(saved, why.unit)} {why.unit.per_h} less"
        )
    lines += [
        _step(side, neighbour, gpus, why.unit)
        for side, neighbour, gpus in (
            ("lower", why.lower, plan.marginal_gpus_below),
            ("higher", why.higher, plan.marginal_gpus_above),
        )
        if neighbour is not None
    ]
    if why.infeasible_boundaries_tokens:
        lines.append(
            f"{len(why.infeasible_boundaries_tokens)} boundaries have no fleet that meets the "
            f"target, from {tokens(min(why.infeasible_boundaries_tokens))} to "
            f"{tokens(max(why.infeasible_boundaries_tokens))}"
        )
    return lines


def curve_shape(why: Explanation, plan: Plan) -> str:
    """Say which boundaries cost about the lowest, here and on the page."""
    within = f"within {percent(FLAT_WITHIN, 0)} of the lowest"
    low, high = tokens(why.flat_from_tokens), tokens(why.flat_to_tokens)
    if plan.long is None and low == high:
        return f"no two pools cost {within}"
    if why.is_flat:
        return f"flat: any from {low} to {high} costs {within}"
    if low == high:
        return f"sharp: only {low} costs {within}"
    return f"sharp: only from {low} to {high} does it cost {within}"


def _step(side: str, neighbour: Neighbour, gpus: float | None, unit: CostUnit) -> str:
    per_thousand = neighbour.change_per_h_per_token * 1_000
    line = (
        f"one edge {side}, {tokens(neighbour.boundary_tokens)}: "
        f"{cost(neighbour.change_per_h, unit, '+')} {unit.per_h} "
        f"({cost(per_thousand, unit, '+')} per 1,000 tokens)"
    )
    if gpus is not None:
        line += f"; with this gamma and before rounding {gpus:+,.2f} GPUs"
    return line


def _sensitivities(why: Explanation, plan: Plan, workload: Workload, request: PlanRequest) -> Table:
    """Return what another rate, share or target would cost, the plan between them."""
    now = {
        Premise.ARRIVAL_RATE: workload.arrival_rate_per_s,
        Premise.COMPRESSIBLE_SHARE: request.compressible_share,
        Premise.SLO_BASE: request.slo_ttft_p99.base_s,
        Premise.E2E_BASE: request.slo_e2e_p99.base_s if request.slo_e2e_p99 else 0.0,
        Premise.GAP: request.slo_itl_p99_s or 0.0,
        Premise.CACHED_SHARE: workload.moments.cached_share,
    }
    shown = table("if", "were", "instead of", why.unit.per_h, "change")
    for one in why.sensitivities:
        change = one.change_per_h
        shown.add_row(
            PREMISES[one.premise],
            _value(one.premise, one.value),
            _value(one.premise, now[one.premise]),
            "infeasible" if one.cost_per_h is None else cost(one.cost_per_h, why.unit),
            "–" if change is None else signed_percent(change / plan.minimised_per_h),
        )
    return shown


def _value(premise: Premise, value: float) -> str:
    if premise is Premise.ARRIVAL_RATE:
        return f"{value:,.4g}"
    if premise in (Premise.COMPRESSIBLE_SHARE, Premise.CACHED_SHARE):
        return percent(value, 0)
    return seconds(value)


def _ten_ms(why: Explanation) -> str:
    worth = why.ten_ms_of_slo_per_h
    if worth is None:
        return "no other base of the target has a fleet"
    return f"10 ms more would save {cost(worth, why.unit)} {why.unit.per_h}, on average around it"
