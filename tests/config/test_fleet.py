"""A fleet's own prices and grids, in place of those of the profiles."""

from __future__ import annotations

import sys

import pytest

from fleetopt.config.fleet import fleet_catalogue, forecast_config, plan_request
from fleetopt.config.profiles import load_catalogue
from fleetopt.config.settings import FleetSettings, load_settings
from fleetopt.errors import ConfigError
from fleetopt.planner.forecast.outcome import ForecastConfig, Method
from fleetopt.planner.plan import CostUnit

H100, A100 = "h100/qwen3-32b/tp2", "a100/qwen3-32b/tp2"


def test_nothing_of_its_own_leaves_the_catalogue() -> None:
    catalogue = load_catalogue()
    assert fleet_catalogue(FleetSettings(), catalogue) == dict(catalogue)


def test_figures_go_by_gpu_and_the_rest_takes_the_default() -> None:
    fleet = FleetSettings(
        prices_usd_per_gpu_h={"h100": 2.0},
        carbon_g_per_kwh={"a100": 20.0, "default": 400.0},
    )
    catalogue = load_catalogue()
    own = fleet_catalogue(fleet, catalogue)
    assert own[H100].price_usd_per_gpu_h == 2.0
    assert own[A100].price_usd_per_gpu_h == catalogue[A100].price_usd_per_gpu_h
    assert own[H100].carbon_g_per_kwh == 400.0
    assert own[A100].carbon_g_per_kwh == 20.0


def test_both_pools_of_one_profile_stay_the_same_engine() -> None:
    fleet = FleetSettings(prices_usd_per_gpu_h={"default": 1.0}, carbon_g_per_kwh={"default": 1.0})
    request = plan_request(fleet, load_catalogue())
    assert request.short_profile is request.long_profile
    assert request.minimise is CostUnit.USD


def test_carbon_is_asked_for_by_its_name() -> None:
    fleet = FleetSettings(minimise="carbon", carbon_g_per_kwh={"h100": 300.0})
    assert plan_request(fleet, load_catalogue()).minimise is CostUnit.CARBON


@pytest.mark.parametrize("setting", ["prices_usd_per_gpu_h", "carbon_g_per_kwh"])
def test_a_gpu_that_no_profile_runs_on_is_refused_with_its_path(setting: str) -> None:
    fleet = FleetSettings.model_validate({setting: {"h100": 1.0, "h1000": 1.0}})
    with pytest.raises(ConfigError, match=rf"^fleet\.{setting}\.h1000: .*known are a100, b200"):
        plan_request(fleet, load_catalogue())


def test_forecasts_are_asked_for_as_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert forecast_config(load_settings()) == ForecastConfig()
    own = {"horizon_s": 900, "quantile": 0.9, "season_s": 3_600, "method": "holt_winters"}
    asked = forecast_config(load_settings(forecast=own))
    assert asked == ForecastConfig(900.0, 0.9, 3_600.0, Method.HOLT_WINTERS)
    monkeypatch.setitem(sys.modules, "statsmodels", None)
    with pytest.raises(ConfigError, match=r"pip install 'fleetopt\[forecast\]'"):
        forecast_config(load_settings(forecast=own))
