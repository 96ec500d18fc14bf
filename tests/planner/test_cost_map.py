"""The map of costs agrees with the search, cell by cell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fleetopt.config.profiles import load_profile
from fleetopt.planner.cost import CostUnit
from fleetopt.planner.cost_map import cost_map
from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.explain import explain
from fleetopt.planner.fixed import needed_at
from fleetopt.planner.plan import Plan, PlanRequest, plan
from fleetopt.planner.target import TtftTarget
from fleetopt.planner.workload import Workload

ENGINE = load_profile("h100/qwen3-32b/tp2")
LARGE = load_profile("h200/qwen3-32b/tp4")


def traffic(rate_per_s: float = 60.0) -> Workload:
    rng = np.random.default_rng(4)
    total = np.minimum(np.exp(rng.normal(7.0, 1.2, 4_000)), 30_000).astype(int) + 64
    output = np.minimum(rng.integers(20, 600, total.size), total // 2)
    return Workload.from_requests(total - output, output, rate_per_s, dispersion=2.0)


def carbon(engine: EngineProfile, idle_power_w: float | None) -> EngineProfile:
    return replace(engine, max_power_w=600.0, idle_power_w=idle_power_w, carbon_g_per_kwh=350.0)


def request(target: str, **changes: object) -> PlanRequest:
    asked = PlanRequest(ENGINE, ENGINE, 32_768, TtftTarget.parse(target))
    return replace(asked, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("long_profile", [ENGINE, LARGE], ids=["same engine", "two engines"])
@pytest.mark.parametrize("target", ["300ms+0.2ms/token", "2s"])
@pytest.mark.parametrize("unit", CostUnit)
def test_every_cell_costs_what_the_search_finds_there(
    target: str, long_profile: EngineProfile, unit: CostUnit
) -> None:
    asked = request(target, long_profile=long_profile)
    if unit is CostUnit.CARBON:
        engines = carbon(ENGINE, 90.0), carbon(long_profile, None)
        asked = replace(asked, short_profile=engines[0], long_profile=engines[1], minimise=unit)
    workload = traffic()
    found = cost_map(workload, asked)
    assert found.unit is unit
    rng = np.random.default_rng(1)
    choices = np.argwhere(found.is_choice)
    for step, column in choices[rng.permutation(len(choices))[:40]]:
        needed = needed_at(workload, asked, found.boundaries_tokens[column], found.gammas[step])
        cost = found.cost_per_h[step, column]
        if needed:
            assert cost == pytest.approx(needed.cost_per_h)
        elif cost < np.inf:  # the search leaves out a step of gamma that compresses nothing more
            assert cost == pytest.approx(found.cost_per_h[step - 1, column])
            assert step > 0


def test_each_boundary_is_the_curves_and_the_lowest_is_the_plan() -> None:
    workload, asked = traffic(), request("300ms+0.2ms/token")
    chosen = plan(workload, asked)
    assert isinstance(chosen, Plan)
    assert chosen.long is not None
    found = cost_map(workload, asked)
    assert found.cost_per_h.min() == pytest.approx(chosen.minimised_per_h)
    lowest = dict(zip(found.boundaries_tokens, found.cost_per_h.min(axis=0), strict=True))
    why = explain(workload, asked, chosen)
    for point in why.curve:
        if point.long_replicas:
            assert lowest[point.boundary_tokens] == pytest.approx(point.cost_per_h)
    for tokens in why.infeasible_boundaries_tokens:
        assert lowest[tokens] == np.inf


def test_gamma_stops_where_the_band_would_pass_the_long_context() -> None:
    found = cost_map(traffic(), request("2s", gamma_max=4.0))
    assert found.gammas == pytest.approx([2 ** (step / 8) for step in range(17)])
    band = np.multiply.outer(found.gammas, found.boundaries_tokens)
    assert (band[found.is_choice] <= 32_768 * 1.001).all()
    assert (band[~found.is_choice] > 32_768).all()
    assert np.isinf(found.cost_per_h[~found.is_choice]).all()


def test_a_limit_of_replicas_leaves_holes() -> None:
    workload, asked = traffic(), request("300ms+0.2ms/token")
    chosen = plan(workload, asked)
    assert isinstance(chosen, Plan)
    most = max(chosen.short_replicas, chosen.long_replicas)
    free, limited = cost_map(workload, asked), cost_map(workload, replace(asked, max_replicas=most))
    holds = np.isfinite(limited.cost_per_h)
    assert 0 < holds.sum() < np.isfinite(free.cost_per_h).sum()
    assert (limited.cost_per_h[holds] == free.cost_per_h[holds]).all()
