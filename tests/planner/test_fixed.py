"""A fleet whose boundary, γ or counts are given agrees with the plan that chose them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleetopt.planner.fixed import best, needed_at, record_at
from fleetopt.planner.plan import Admission, Plan, PlanRequest, plan, plan_pinned
from fleetopt.planner.record import plan_record
from fleetopt.planner.target import TtftTarget
from tests.planner.traffic import NO_TRAFFIC, REQUEST, short_traffic

ONE_POOL = replace(REQUEST, admission=Admission.STATISTICAL, gamma_max=1.0)
IMPOSSIBLE = replace(REQUEST, slo_ttft_p99=TtftTarget(0.001))
COUNTED = ("boundary_tokens", "gamma", "compress_up_to_tokens", "gpus", "unservable_share")


@pytest.mark.parametrize("request_", [REQUEST, ONE_POOL], ids=["two pools", "one pool"])
@pytest.mark.parametrize("rate_per_s", [2.0, 100.0, 1_000.0])
def test_the_best_fleet_is_the_plans(request_: PlanRequest, rate_per_s: float) -> None:
    workload = short_traffic(rate_per_s)
    free = plan(workload, request_)
    assert isinstance(free, Plan)
    for boundary, chosen in (
        (None, free),
        (free.boundary_tokens, plan_pinned(workload, request_, free.boundary_tokens)),
        (4_870, plan_pinned(workload, request_, 4_870)),
    ):
        found = best(workload, request_, boundary)
        assert isinstance(chosen, Plan)
        assert found is not None
        assert (found.boundary_tokens, found.gamma) == (chosen.boundary_tokens, chosen.gamma)
        assert found.needed.short_replicas == chosen.short_replicas
        assert found.needed.long_replicas == chosen.long_replicas
        assert found.cost_per_h == pytest.approx(chosen.minimised_per_h)


@pytest.mark.parametrize("request_", [REQUEST, ONE_POOL], ids=["two pools", "one pool"])
def test_the_record_at_the_planned_counts_is_the_plans(request_: PlanRequest) -> None:
    workload = short_traffic(500.0)
    chosen = plan(workload, request_)
    assert isinstance(chosen, Plan)
    place = (chosen.boundary_tokens, chosen.gamma)
    needed = needed_at(workload, request_, *place)
    assert needed is not None
    counts = (chosen.short_replicas, chosen.long_replicas)
    assert (needed.short_replicas, needed.long_replicas) == counts
    record, planned = record_at(workload, request_, *place, needed, counts), plan_record(chosen)
    assert [getattr(record, name) for name in COUNTED] == [
        getattr(planned, name) for name in COUNTED
    ]
    for name in ("cost_usd_per_h", "tokens_before_per_s", "tokens_after_per_s"):
        assert getattr(record, name) == pytest.approx(getattr(planned, name))
    assert record.short.utilization == pytest.approx(planned.short.utilization)
    assert record.short.ttft_p99_s == pytest.approx(planned.short.ttft_p99_s)
    assert (record.long is None) == (planned.long is None)
    assert record.compressed_share == pytest.approx(planned.compressed_share)


def test_more_replicas_than_needed_lower_utilisation_and_no_wait_grows() -> None:
    workload = short_traffic(500.0)
    chosen = plan(workload, REQUEST)
    assert isinstance(chosen, Plan)
    place = (chosen.boundary_tokens, chosen.gamma)
    needed = needed_at(workload, REQUEST, *place)
    assert needed is not None
    twice = (2 * needed.short_replicas, 2 * needed.long_replicas)
    record = record_at(workload, REQUEST, *place, needed, twice)
    assert record.short.utilization == pytest.approx(chosen.short.utilization / 2)
    assert record.short.slot_occupancy is not None
    assert record.short.slot_occupancy < chosen.short.slot_occupancy
    assert record.short.ttft_p99_s is not None
    assert record.short.ttft_p99_s <= chosen.short.ttft_p99_s
    assert record.short.binding is chosen.short.binding
    assert record.gpu_cost_usd_per_h == pytest.approx(2 * chosen.gpu_cost_usd_per_h)


def test_what_can_not_be_planned_has_no_best_fleet() -> None:
    assert best(NO_TRAFFIC, REQUEST, None) is None
    assert best(short_traffic(), IMPOSSIBLE, None) is None
    assert needed_at(short_traffic(), IMPOSSIBLE, 4_870, 1.0) is None
