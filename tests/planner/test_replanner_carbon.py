"""A fleet that minimises carbon: regret, savings and alerts are in carbon, prices play no part."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleetopt.planner.plan import CostUnit, Plan, plan
from fleetopt.planner.replanner import ReplanConfig
from tests.planner.traffic import ENGINE, REQUEST, Fleet, long_traffic, short_traffic

POWERED = replace(ENGINE, idle_power_w=80.0, max_power_w=400.0, carbon_g_per_kwh=500.0)
# Dollars say otherwise: the long pool is dear and its grid clean.
CLEAN = replace(POWERED, name="clean", price_usd_per_gpu_h=9.0, carbon_g_per_kwh=450.0)
CONFIG = ReplanConfig(
    fleet="chat",
    request=replace(REQUEST, short_profile=POWERED, long_profile=CLEAN, minimise=CostUnit.CARBON),
)


@pytest.fixture
def moving() -> Fleet:
    """A fleet that saw short traffic and now one window of long traffic."""
    fleet = Fleet(CONFIG)
    fleet.see(short_traffic(), 0)
    fleet.see(long_traffic(), 1)
    return fleet


def test_the_record_says_what_was_minimised(moving: Fleet) -> None:
    active = moving.last.active
    assert active is not None
    assert active.minimised is CostUnit.CARBON
    assert active.carbon_kg_per_h is not None
    assert active.minimised_per_h is not None
    assert active.carbon_kg_per_h <= active.minimised_per_h
    assert active.cost_usd_per_h > active.minimised_per_h  # other figures altogether


def test_regret_and_savings_are_in_carbon(moving: Fleet) -> None:
    active, optimal = moving.last.active, moving.last.optimal
    assert active is not None
    assert optimal is not None
    assert active.minimised_per_h is not None
    assert optimal.minimised_per_h is not None
    assert moving.last.regret_ratio is not None
    # The published fleet may hold more than the best at its boundary, never less.
    held = active.minimised_per_h / optimal.minimised_per_h - 1.0
    assert 0.0 < moving.last.regret_ratio <= held + 1e-9
    needs_none = active.short.replicas == active.short.needed_replicas
    if needs_none and active.long and active.long.replicas == active.long.needed_replicas:
        assert moving.last.regret_ratio == pytest.approx(held)
    found = plan(long_traffic(), CONFIG.request)
    assert isinstance(found, Plan)
    for one, planned in zip(moving.last.baselines, found.baselines, strict=True):
        assert one.saving_ratio == pytest.approx(
            1.0 - active.minimised_per_h / planned.minimised_per_h
        )
        assert one.carbon_kg_per_h == planned.carbon_kg_per_h


def test_prices_do_not_move_a_fleet_that_minimises_carbon() -> None:
    dear = replace(POWERED, price_usd_per_gpu_h=POWERED.price_usd_per_gpu_h * 50)
    request = replace(CONFIG.request, short_profile=dear, compression_penalty_usd=0.0)
    cheap = replace(CONFIG.request, compression_penalty_usd=0.0)
    one, other = plan(long_traffic(), request), plan(long_traffic(), cheap)
    assert isinstance(one, Plan)
    assert isinstance(other, Plan)
    assert (one.boundary_tokens, one.gamma) == (other.boundary_tokens, other.gamma)
    assert (one.short_replicas, one.long_replicas) == (other.short_replicas, other.long_replicas)


def test_a_move_is_told_in_carbon(moving: Fleet) -> None:
    moving.see(long_traffic(), 2)
    (alert,) = moving.raised
    details = dict(alert.details)
    assert "kgCO2e/h saved" in alert.text
    assert "USD" not in alert.text
    assert float(details["saving_carbon_kg_per_h"]) > 0.0
    assert "saving_usd_per_h" not in details
