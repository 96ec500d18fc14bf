"""From a fleet's settings to what the planner and the replanner are asked for."""

from __future__ import annotations

from collections.abc import Mapping

from fleetopt.config.profiles import load_profile
from fleetopt.config.settings import FleetSettings, Settings
from fleetopt.planner.drift import DriftRule
from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.plan import Admission, PlanRequest
from fleetopt.planner.replanner import ReplanConfig
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


def replan_config(
    name: str, settings: Settings, catalogue: Mapping[str, EngineProfile]
) -> ReplanConfig:
    """Return what a fleet is replanned with; ConfigError names what is wrong."""
    fleet = settings.for_fleet(name)
    return ReplanConfig(
        fleet=name,
        request=plan_request(fleet, catalogue),
        drift=DriftRule(
            max_regret=fleet.max_drift_regret,
            min_samples=fleet.min_samples,
            confirm_advance_s=settings.replan.drift_confirm_share * settings.window.span_s,
        ),
        valid_for_s=settings.replan.stale_after_s + 2 * settings.replan.interval_s,
    )
