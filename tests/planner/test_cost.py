"""What is minimised: prices, or carbon by power and grid; what is unknown stays so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetopt.errors import ConfigError
from fleetopt.planner.cost import gpu_cost
from fleetopt.planner.engine import EngineProfile
from fleetopt.planner.plan import CostUnit, Plan, PlanRequest, plan
from fleetopt.planner.record import baseline_records, plan_record
from fleetopt.planner.workload import Workload
from tests.planner.examples import H100, PATIENT, chat, request_for, requests, workloads

POWERED = replace(H100, idle_power_w=100.0, max_power_w=700.0, carbon_g_per_kwh=400.0)


def traffic(rate_per_s: float = 40.0) -> Workload:
    return Workload.from_requests(*chat(4_000), rate_per_s)


def fleet(request: PlanRequest, rate_per_s: float = 40.0) -> Plan:
    found = plan(traffic(rate_per_s), request)
    assert isinstance(found, Plan)
    return found


def scaled(engine: EngineProfile, factor: float) -> EngineProfile:
    return replace(engine, price_usd_per_gpu_h=engine.price_usd_per_gpu_h * factor)


def shape(found: Plan) -> tuple[int, float, int, int]:
    return found.boundary_tokens, found.gamma, found.short_replicas, found.long_replicas


@settings(PATIENT, max_examples=60)
@given(workloads(), requests(), st.sampled_from([0.125, 0.5, 4.0, 64.0]))
def test_scaled_prices_scale_the_cost_and_leave_the_fleet(
    workload: Workload, request: PlanRequest, factor: float
) -> None:
    found = plan(workload, request)
    asked = replace(
        request,
        short_profile=scaled(request.short_profile, factor),
        long_profile=scaled(request.long_profile, factor),
        compression_penalty_usd=request.compression_penalty_usd * factor,
    )
    if request.short_profile is request.long_profile:
        asked = replace(asked, short_profile=asked.long_profile)
    other = plan(workload, asked)
    assert isinstance(other, Plan) == isinstance(found, Plan)
    if isinstance(found, Plan) and isinstance(other, Plan):
        assert shape(other) == shape(found)
        assert other.cost_usd_per_h == pytest.approx(found.cost_usd_per_h * factor)
        scale = factor if request.minimise is CostUnit.USD else 1.0
        assert other.minimised_per_h == pytest.approx(found.minimised_per_h * scale)
        assert other.carbon_kg_per_h == found.carbon_kg_per_h
        savings = [one.saving_ratio for one in found.baselines]
        assert [one.saving_ratio for one in other.baselines] == pytest.approx(savings)


def test_power_is_idle_power_and_the_rest_by_load() -> None:
    found = fleet(request_for(POWERED, "2s"))
    for pool in found.pools:
        busy = pool.utilization * 600.0
        assert pool.power_w == pytest.approx(pool.gpus * (100.0 + busy))
        assert pool.power_w is not None
        assert pool.carbon_kg_per_h == pytest.approx(pool.power_w / 1_000 * 0.4)
    assert found.power_w is not None
    assert found.power_w == pytest.approx(sum(pool.power_w or 0.0 for pool in found.pools))
    assert found.tokens_per_joule == pytest.approx(found.tokens_after_per_s / found.power_w)
    assert not found.power_is_upper_bound


def test_without_an_idle_figure_power_is_at_most_the_highest() -> None:
    known = fleet(request_for(POWERED, "2s"))
    bound = fleet(request_for(replace(POWERED, idle_power_w=None), "2s"))
    assert bound.power_is_upper_bound
    assert bound.power_w == pytest.approx(bound.gpus * 700.0)
    assert known.power_w is not None
    assert bound.power_w is not None
    assert known.power_w < bound.power_w


def test_unknown_power_is_none_in_every_figure() -> None:
    found = fleet(request_for(replace(H100, carbon_g_per_kwh=400.0), "2s"))
    record = plan_record(found)
    powers = [found.power_w, found.carbon_kg_per_h, record.power_w, record.carbon_kg_per_h]
    powers += [known for one in found.pools for known in (one.power_w, one.carbon_kg_per_h)]
    powers += [known for one in found.baselines for known in (one.power_w, one.carbon_kg_per_h)]
    published = baseline_records(found.baselines, record)
    powers += [known for one in published for known in (one.power_w, one.carbon_kg_per_h)]
    assert powers == [None] * len(powers)
    assert found.tokens_per_joule is None
    assert record.tokens_per_joule is None
    assert not found.power_is_upper_bound


def test_known_power_on_an_unknown_grid_has_no_carbon() -> None:
    found = fleet(request_for(replace(POWERED, carbon_g_per_kwh=None), "2s"))
    assert found.power_w is not None
    assert found.tokens_per_joule is not None
    assert found.carbon_kg_per_h is None


def test_one_unknown_pool_makes_the_fleet_unknown() -> None:
    request = replace(request_for(POWERED, "2s", boundary_tokens=2_048), short_profile=H100)
    found = fleet(request)
    assert found.long is not None
    assert found.long.power_w is not None
    assert found.short.power_w is None
    assert found.power_w is None


def test_carbon_is_what_is_minimised() -> None:
    dirty = replace(POWERED, name="dirty", price_usd_per_gpu_h=1.0, carbon_g_per_kwh=700.0)
    clean = replace(POWERED, name="clean", price_usd_per_gpu_h=3.0, carbon_g_per_kwh=30.0)
    cost: dict[tuple[CostUnit, str], float] = {}
    for unit in CostUnit:
        for engine in (dirty, clean):
            found = fleet(replace(request_for(engine, "2s"), minimise=unit))
            assert found.minimised is unit
            cost[unit, engine.name] = found.minimised_per_h
            assert found.carbon_kg_per_h is not None
            if unit is CostUnit.CARBON:
                # The penalty of compression comes on top.
                assert found.carbon_kg_per_h <= found.minimised_per_h
                assert found.carbon_kg_per_h == pytest.approx(found.minimised_per_h, rel=0.05)
            else:
                assert found.minimised_per_h == pytest.approx(found.cost_usd_per_h)
    assert cost[CostUnit.USD, "dirty"] < cost[CostUnit.USD, "clean"]
    assert cost[CostUnit.CARBON, "clean"] < cost[CostUnit.CARBON, "dirty"]


def test_compression_is_worth_as_much_of_a_gpu_in_either_unit() -> None:
    usd = request_for(POWERED, "2s", compression_penalty_usd=0.006, boundary_tokens=2_048)
    carbon = replace(usd, minimise=CostUnit.CARBON)
    # 3 USD a GPU hour, two GPUs: 0.006 USD are 3.6 s of a replica, here at 2 x 700 W.
    assert usd.compression_penalty == 0.006
    assert carbon.compression_penalty == pytest.approx(0.001 * 2 * 0.7 * 0.4)
    for asked in (usd, carbon):
        assert fleet(replace(asked, compression_penalty_usd=1e-6)).gamma > 1.0
        assert fleet(replace(asked, compression_penalty_usd=1.0)).gamma == 1.0


def test_pools_in_different_places_move_load_to_the_cleaner_one() -> None:
    clean = replace(POWERED, carbon_g_per_kwh=30.0)
    request = replace(request_for(POWERED, "2s"), minimise=CostUnit.CARBON)
    clean_short = fleet(replace(request, short_profile=clean))
    clean_long = fleet(replace(request, long_profile=clean))
    assert clean_short.boundary_tokens > clean_long.boundary_tokens or clean_long.long is None
    # Everything at the clean place is one of the choices.
    assert clean_long.carbon_kg_per_h is not None
    assert clean_short.carbon_kg_per_h is not None
    all_dirty = fleet(request).carbon_kg_per_h
    assert all_dirty is not None
    assert max(clean_long.carbon_kg_per_h, clean_short.carbon_kg_per_h) < all_dirty


@settings(PATIENT, max_examples=40)
@given(workloads(), requests())
def test_no_fleet_of_the_other_unit_is_better(workload: Workload, request: PlanRequest) -> None:
    by_unit = {unit: plan(workload, replace(request, minimise=unit)) for unit in CostUnit}
    usd, carbon = by_unit[CostUnit.USD], by_unit[CostUnit.CARBON]
    assert isinstance(usd, Plan) == isinstance(carbon, Plan)
    if isinstance(usd, Plan) and isinstance(carbon, Plan):
        assert usd.cost_usd_per_h <= carbon.cost_usd_per_h * (1 + 1e-9)
        if request.compression_penalty_usd == 0.0:
            assert usd.carbon_kg_per_h is not None
            assert carbon.carbon_kg_per_h is not None
            assert carbon.carbon_kg_per_h <= usd.carbon_kg_per_h * (1 + 1e-9)


@pytest.mark.parametrize("name", ["max_power_w", "carbon_g_per_kwh"])
def test_carbon_can_not_be_minimised_where_it_is_unknown(name: str) -> None:
    known = replace(POWERED, idle_power_w=None)
    unknown = replace(known, **{name: None})  # type: ignore[arg-type]
    for short, long in ((known, unknown), (unknown, known)):
        with pytest.raises(ConfigError, match=rf"^h100\.{name} is unknown"):
            replace(
                request_for(H100), short_profile=short, long_profile=long, minimise=CostUnit.CARBON
            )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"idle_power_w": 0.0}, "idle_power_w is 0.0"),
        ({"max_power_w": float("nan")}, "max_power_w is nan"),
        ({"carbon_g_per_kwh": -1.0}, "carbon_g_per_kwh is -1.0"),
        ({"idle_power_w": 800.0}, "idle_power_w is 800.0; expected at most max_power_w=700.0"),
        ({"max_power_w": None}, "max_power_w is unknown"),
    ],
)
def test_power_out_of_range_is_refused(changes: dict[str, float | None], said: str) -> None:
    with pytest.raises(ConfigError, match=rf"^h100\.{said}"):
        replace(POWERED, **changes)  # type: ignore[arg-type]


def test_costs_of_two_pools_add_up() -> None:
    one, other = gpu_cost(POWERED, 3, 2.0), gpu_cost(POWERED, 1, 0.0)
    assert one + other == gpu_cost(POWERED, 4, 2.0)
    assert (one + gpu_cost(H100, 1, 0.0)).power_w is None
