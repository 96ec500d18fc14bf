"""From a fleet's settings to what the planner and the replanner are asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from fleetopt.config.profiles import load_profile
from fleetopt.config.settings import OTHER_GPUS, FleetSettings, Settings
from fleetopt.errors import ConfigError
from fleetopt.planner.drift import DriftRule
from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.forecast.holt_winters import is_installed
from fleetopt.planner.forecast.outcome import ForecastConfig, Method
from fleetopt.planner.plan import Admission, CostUnit, PlanRequest
from fleetopt.planner.replanner import ReplanConfig
from fleetopt.planner.request import SloScope, check_boundary
from fleetopt.planner.target import E2eTarget, TtftTarget, parse_gap_s


def fleet_catalogue(
    fleet: FleetSettings, catalogue: Mapping[str, EngineProfile], path: str = "fleet"
) -> Mapping[str, EngineProfile]:
    """Return the profiles at the fleet's own prices, on its own grids; its settings are at `path`.

    Raises
    ------
    ConfigError
        If a price or a grid is for a GPU that no profile runs on.
    """
    own = (fleet.prices_usd_per_gpu_h, fleet.carbon_g_per_kwh)
    gpus = {profile.gpu for profile in catalogue.values()}
    for setting, by_gpu in zip(("prices_usd_per_gpu_h", "carbon_g_per_kwh"), own, strict=True):
        for gpu in sorted(by_gpu.keys() - gpus - {OTHER_GPUS}):
            raise ConfigError(
                f"{path}.{setting}.{gpu}: no engine profile runs on this GPU; known are "
                f"{', '.join(sorted(gpus))}, and {OTHER_GPUS} for all others"
            )
    return {name: _with(profile, *own) for name, profile in catalogue.items()}


def _with(
    profile: EngineProfile, prices: Mapping[str, float], grids: Mapping[str, float]
) -> EngineProfile:
    price = prices.get(profile.gpu, prices.get(OTHER_GPUS, profile.price_usd_per_gpu_h))
    grid = grids.get(profile.gpu, grids.get(OTHER_GPUS, profile.carbon_g_per_kwh))
    if (price, grid) == (profile.price_usd_per_gpu_h, profile.carbon_g_per_kwh):
        return profile
    return replace(profile, price_usd_per_gpu_h=price, carbon_g_per_kwh=grid)


def plan_request(
    fleet: FleetSettings,
    catalogue: Mapping[str, EngineProfile],
    boundary_tokens: int | None = None,
    path: str = "fleet",
) -> PlanRequest:
    """Return the planner's question for a fleet whose settings are at this path.

    ConfigError names what is wrong: a setting by its path, a boundary as it is.
    """
    if boundary_tokens is not None:  # no setting, so it has no path
        check_boundary(boundary_tokens, fleet.long_context_tokens)
    catalogue = fleet_catalogue(fleet, catalogue, path)
    with _located(path):
        return _request(fleet, catalogue, boundary_tokens)


def _request(
    fleet: FleetSettings, catalogue: Mapping[str, EngineProfile], boundary_tokens: int | None
) -> PlanRequest:
    return PlanRequest(
        short_profile=_engine(fleet, "short_profile", catalogue),
        long_profile=_engine(fleet, "long_profile", catalogue),
        long_context_tokens=fleet.long_context_tokens,
        slo_ttft_p99=TtftTarget.parse(fleet.slo_ttft_p99),
        slo_e2e_p99=None if fleet.slo_e2e_p99 is None else E2eTarget.parse(fleet.slo_e2e_p99),
        slo_itl_p99_s=None if fleet.slo_itl_p99 is None else parse_gap_s(fleet.slo_itl_p99),
        slo_scope=SloScope(fleet.slo_scope),
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
        minimise=CostUnit(fleet.minimise),
    )


def _engine(
    fleet: FleetSettings, setting: str, catalogue: Mapping[str, EngineProfile]
) -> EngineProfile:
    own: str | None = getattr(fleet, setting)
    try:
        return load_profile(own or fleet.profile, catalogue)
    except ConfigError as error:
        raise ConfigError(f"{setting if own else 'profile'}: {error}") from error


@contextmanager
def _located(path: str) -> Iterator[None]:
    """Put the path of a fleet's settings before what is said of one of them, or of all."""
    try:
        yield
    except ConfigError as error:
        first = re.match(r"\w*", str(error))
        is_setting = first is not None and first[0] in FleetSettings.model_fields
        raise ConfigError(f"{path}{'.' if is_setting else ': '}{error}") from error


def forecast_config(settings: Settings) -> ForecastConfig:
    """Return how arrival rates are forecast; ConfigError where the method's library is missing."""
    chosen = settings.forecast
    method = None if chosen.method == "auto" else Method(chosen.method)
    if method is Method.HOLT_WINTERS and not is_installed():
        raise ConfigError(
            "forecast.method is holt_winters, which needs statsmodels: "
            "pip install 'fleetopt[forecast]', or set it to auto"
        )
    return ForecastConfig(chosen.horizon_s, chosen.quantile, chosen.season_s, method)


def replan_config(
    name: str, settings: Settings, catalogue: Mapping[str, EngineProfile]
) -> ReplanConfig:
    """Return what a fleet is replanned with; ConfigError names what is wrong."""
    fleet = settings.for_fleet(name)
    return ReplanConfig(
        fleet=name,
        request=plan_request(fleet, catalogue, path=settings.path_of(name)),
        drift=DriftRule(
            max_regret=fleet.max_drift_regret,
            min_samples=fleet.min_samples,
            confirm_advance_s=settings.replan.drift_confirm_share * settings.window.span_s,
        ),
        valid_for_s=settings.replan.stale_after_s + 2 * settings.replan.interval_s,
    )
