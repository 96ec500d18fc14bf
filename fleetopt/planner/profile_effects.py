"""Which figures of an engine profile a plan depends on most.

One figure at a time is made a tenth worse, and the fleet planned anew. Small fleets jump by whole
replicas, so their traffic is scaled up first: what is told is a ratio.
"""

from dataclasses import replace
from typing import Final

from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.fixed import Best, best
from fleetopt.planner.recommendation import ProfileEffect
from fleetopt.planner.request import PlanRequest
from fleetopt.planner.workload import Workload

STEP: Final = 0.1
MOST: Final = 3
LEAST_REPLICAS: Final = 200

FIGURES: Final = (
    "base_iteration_s",
    "per_sequence_s",
    "per_context_token_s",
    "prefill_token_s",
    "prefill_token_context_s",
    "kv_capacity_tokens",
)


def profile_effects(
    workload: Workload, request: PlanRequest, boundary_tokens: int | None = None
) -> tuple[ProfileEffect, ...]:
    """Return the figures that matter most, the most first; none where no fleet can be planned.

    Parameters
    ----------
    workload : Workload
        With requests in it.
    request : PlanRequest
        Its limit of replicas plays no part.
    boundary_tokens : int, optional
        Of the fleet; by default the cheapest.
    """
    request = replace(request, max_replicas=None)
    now = best(workload, request, boundary_tokens)
    if now is None:
        return ()
    count = _replicas(now)
    if count < LEAST_REPLICAS:
        workload = workload.scaled_to(workload.arrival_rate_per_s * LEAST_REPLICAS / count)
        larger = best(workload, request, boundary_tokens)
        if larger is None:
            return ()
        now = larger
    found = []
    for engine in dict.fromkeys((request.short_profile, request.long_profile)):
        for figure in FIGURES:
            worse = worsened(engine, figure, 1.0 + STEP)
            if worse is None:
                continue
            changed = replace(
                request,
                short_profile=worse if request.short_profile is engine else request.short_profile,
                long_profile=worse if request.long_profile is engine else request.long_profile,
            )
            then = best(workload, changed, boundary_tokens)
            ratio = None if then is None else then.cost_per_h / now.cost_per_h - 1.0
            found.append(ProfileEffect(profile=engine.name, figure=figure, cost_ratio=ratio))
    found.sort(key=lambda one: -float("inf") if one.cost_ratio is None else -one.cost_ratio)
    return tuple(one for one in found[:MOST] if one.cost_ratio is None or one.cost_ratio > 0.0)


def worsened(engine: EngineProfile, figure: str, factor: float) -> EngineProfile | None:
    """Return the engine with one figure worse by a factor; None where it is 0 and stays so."""
    value = getattr(engine, figure)
    if not value:
        return None
    if figure == "kv_capacity_tokens":
        return replace(engine, kv_capacity_tokens=max(int(value / factor), 1))
    return replace(engine, **{figure: value * factor})


def _replicas(fleet: Best) -> int:
    return fleet.needed.short_replicas + fleet.needed.long_replicas
