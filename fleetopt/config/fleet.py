"""From a fleet's settings to what the planner is asked for."""

from __future__ import annotations

from collections.abc import Mapping

from fleetopt.config.profiles import load_profile
from fleetopt.config.settings import FleetSettings
from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.plan import Admission, PlanRequest
from fleetopt.planner.target import TtftTarget


def plan_request(
    fleet: FleetSettings,
    catalogue: Mapping[str, EngineProfile],
    boundary_tokens: int | None = None,
) -> PlanRequest:
    """Return the planner's question for a fleet; ConfigError names what is wrong."""
    return PlanRequest(
        short_profile=load_profile(fleet.short_profile or fleet.profile, catalogue),
        long_profile=load_profile(fleet.long_profile or fleet.profile, catalogue),
        long_context_tokens=fleet.long_context_tokens,
        slo_ttft_p99=TtftTarget.parse(fleet.slo_ttft_p99),
        admission=Admission(fleet.admission),
        preemption_probability=fleet.preemption_probability,
        max_utilization=fleet.max_utilization,
        gamma_max=fleet.gamma_max,
        compressible_share=fleet.compressible_share,
        compression_penalty_usd=fleet.compression_penalty_usd,
        min_replicas=fleet.min_replicas,
        max_replicas=fleet.max_replicas,
        node_availability=fleet.node_availability,
        boundary_tokens=boundary_tokens,
    )
