"""Explanations against the planner itself: each figure is a plan that anyone can ask for."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings

from fleetopt.planner.explain import FLAT_WITHIN, Premise, Sensitivity, explain
from fleetopt.planner.plan import Binding, Infeasible, Plan, PlanRequest, plan, plan_pinned
from fleetopt.planner.target import E2eTarget, TtftTarget
from fleetopt.planner.workload import Workload
from tests.planner.examples import (
    H100,
    PATIENT,
    chat,
    long_context,
    request_for,
    requests,
    workloads,
)

SMALL = settings(PATIENT, max_examples=30)


def test_further_targets_are_varied_where_they_are_set() -> None:
    workload = Workload.from_requests(*chat(), 100.0)
    changes = {"slo_e2e_p99": E2eTarget(4.0, 0.03), "slo_itl_p99_s": 0.1, "gamma_max": 1.0}
    request = request_for(H100, "2s", boundary_tokens=4_096, **changes)
    chosen = plan(workload, request)
    assert isinstance(chosen, Plan)
    why = explain(workload, request, chosen)
    for premise, now in ((Premise.E2E_BASE, 4.0), (Premise.GAP, 0.1)):
        tight, loose = of(premise, why.sensitivities)
        assert (tight.value, loose.value) == pytest.approx((0.9 * now, 1.1 * now))
        assert loose.cost_per_h is not None
        assert loose.cost_per_h <= chosen.minimised_per_h
        assert tight.cost_per_h is None or tight.cost_per_h >= chosen.minimised_per_h
    without = replace(request, slo_e2e_p99=None, slo_itl_p99_s=None)
    other = plan(workload, without)
    assert isinstance(other, Plan)
    told = {one.premise for one in explain(workload, without, other).sensitivities}
    assert not told & {Premise.E2E_BASE, Premise.GAP}


def of(premise: Premise, sensitivities: tuple[Sensitivity, ...]) -> list[Sensitivity]:
    return [one for one in sensitivities if one.premise is premise]


@SMALL
@given(workloads(), requests())
def test_the_lowest_point_of_the_curve_is_the_plan(
    workload: Workload, request: PlanRequest
) -> None:
    found = plan(workload, request)
    if isinstance(found, Infeasible):
        return
    why = explain(workload, request, found)
    assert why.cheapest.cost_per_h == pytest.approx(found.minimised_per_h, rel=1e-9)
    at_plan = [one for one in why.curve if one.boundary_tokens == found.boundary_tokens]
    assert [one.cost_per_h for one in at_plan] == [pytest.approx(found.minimised_per_h)]
    assert why.flat_from_tokens <= found.boundary_tokens <= why.flat_to_tokens
    for point in why.curve:
        inside = why.flat_from_tokens <= point.boundary_tokens <= why.flat_to_tokens
        limit = found.minimised_per_h * (1 + FLAT_WITHIN)
        assert not inside or point.cost_per_h <= limit * (1 + 1e-9)
    boundaries = [point.boundary_tokens for point in why.curve]
    every = sorted([*boundaries, *why.infeasible_boundaries_tokens])
    assert boundaries == sorted(boundaries)
    assert len(set(every)) == len(every)
    assert every[-1] == request.long_context_tokens


@SMALL
@given(workloads(), requests())
def test_more_traffic_never_costs_less_and_a_looser_target_never_more(
    workload: Workload, request: PlanRequest
) -> None:
    found = plan(workload, request)
    if isinstance(found, Infeasible):
        return
    why = explain(workload, request, found)
    for premise, sign in ((Premise.ARRIVAL_RATE, 1), (Premise.SLO_BASE, -1)):
        ordered = of(premise, why.sensitivities)
        now = {
            Premise.ARRIVAL_RATE: workload.arrival_rate_per_s,
            Premise.SLO_BASE: request.slo_ttft_p99.base_s,
        }[premise]
        costs = [(one.value, one.cost_per_h) for one in ordered]
        costs = sorted([*costs, (now, found.minimised_per_h)])
        known = [cost for _, cost in costs if cost is not None]
        for lower, higher in pairwise(known):
            assert sign * (higher - lower) >= -1e-6 * lower
        feasible = [cost is not None for _, cost in costs]
        assert feasible == sorted(feasible, reverse=sign > 0)
    if why.ten_ms_of_slo_per_h is not None:
        assert why.ten_ms_of_slo_per_h >= -1e-6


def chosen(workload: Workload, request: PlanRequest) -> Plan:
    found = plan(workload, request)
    assert isinstance(found, Plan)
    return found


def cost_of(found: Plan | Infeasible) -> float | None:
    return None if isinstance(found, Infeasible) else found.minimised_per_h


def test_every_figure_is_that_of_a_plan() -> None:
    workload = Workload.from_requests(*long_context(), 24.0)
    request = request_for(H100, "300ms+0.2ms/token")
    found = chosen(workload, request)
    why = explain(workload, request, found)

    for point in why.curve[::9]:
        there = plan_pinned(workload, request, point.boundary_tokens)
        assert isinstance(there, Plan)
        assert point.cost_per_h == pytest.approx(there.minimised_per_h)
        assert (point.short_replicas, point.long_replicas) == (
            there.short_replicas,
            there.long_replicas,
        )

    rates = of(Premise.ARRIVAL_RATE, why.sensitivities)
    assert [one.value for one in rates] == pytest.approx([21.6, 26.4])
    for one in rates:
        assert one.cost_per_h == pytest.approx(
            chosen(workload.scaled_to(one.value), request).minimised_per_h
        )
    shares = of(Premise.COMPRESSIBLE_SHARE, why.sensitivities)
    assert [one.value for one in shares] == [0.5, 1.0]
    for one in shares:
        asked = replace(request, compressible_share=one.value)
        assert one.cost_per_h == pytest.approx(chosen(workload, asked).minimised_per_h)
    bases = of(Premise.SLO_BASE, why.sensitivities)
    assert [one.value for one in bases] == pytest.approx([0.27, 0.29, 0.31, 0.33])
    for one in bases:
        asked = replace(request, slo_ttft_p99=TtftTarget(one.value, 2e-4))
        assert one.cost_per_h == pytest.approx(cost_of(plan(workload, asked)))
        if one.cost_per_h is not None:
            change = one.cost_per_h - found.minimised_per_h
            assert one.change_per_h == pytest.approx(change)


def test_ten_ms_are_worth_a_share_of_what_twenty_percent_are() -> None:
    workload = Workload.from_requests(*long_context(), 24.0)
    request = request_for(H100, "400ms+0.2ms/token")
    why = explain(workload, request, chosen(workload, request))
    tight, _, _, loose = of(Premise.SLO_BASE, why.sensitivities)
    assert tight.cost_per_h is not None
    assert loose.cost_per_h is not None
    worth = (tight.cost_per_h - loose.cost_per_h) / 8  # 80 ms apart
    assert worth > 0
    assert why.ten_ms_of_slo_per_h == pytest.approx(worth)


def test_neighbours_are_the_next_points_of_the_curve() -> None:
    workload = Workload.from_requests(*chat(), 300.0)
    request = request_for(H100, "250ms+0.1ms/token")
    found = chosen(workload, request)
    assert found.long is not None
    why = explain(workload, request, found)
    here = [point.boundary_tokens for point in why.curve].index(found.boundary_tokens)
    for neighbour, at in ((why.lower, here - 1), (why.higher, here + 1)):
        assert neighbour is not None
        assert neighbour.boundary_tokens == why.curve[at].boundary_tokens
        change = why.curve[at].cost_per_h - found.minimised_per_h
        assert neighbour.change_per_h == pytest.approx(change)
        assert neighbour.change_per_h >= 0
        distance = abs(neighbour.boundary_tokens - found.boundary_tokens)
        per_token = neighbour.change_per_h_per_token
        assert per_token * distance == pytest.approx(change)


def test_one_pool_has_no_higher_neighbour() -> None:
    workload = Workload.from_requests(*chat(), 5.0)
    request = request_for(H100, "5s")
    found = chosen(workload, request)
    assert found.long is None
    why = explain(workload, request, found)
    assert why.higher is None
    assert why.lower is not None
    assert [pool.name for pool in why.pools] == ["short"]


def test_a_pinned_boundary_shows_what_moving_it_would_save() -> None:
    workload = Workload.from_requests(*chat(), 300.0)
    request = request_for(H100, "250ms+0.1ms/token")
    pinned = replace(request, boundary_tokens=16_384)
    free, stuck = chosen(workload, request), chosen(workload, pinned)
    why = explain(workload, pinned, stuck)
    assert why.cheapest.cost_per_h == pytest.approx(free.minimised_per_h)
    assert why.cheapest.cost_per_h < stuck.minimised_per_h
    more = of(Premise.ARRIVAL_RATE, why.sensitivities)[1]
    expected = chosen(workload.scaled_to(more.value), pinned)
    assert more.cost_per_h == pytest.approx(expected.minimised_per_h)


@pytest.mark.parametrize("target", ["60s", "250ms+0.1ms/token"])
def test_sizing_says_what_load_alone_would_ask_for(target: str) -> None:
    workload = Workload.from_requests(*chat(), 60.0)
    request = request_for(H100, target, min_replicas=2)
    for pool in explain(workload, request, chosen(workload, request)).pools:
        asked = max(pool.load_replicas, pool.min_replicas)
        if pool.binding in (Binding.PREFILL_TTFT, Binding.QUEUE_WAIT):
            assert pool.replicas > asked
        else:
            assert pool.replicas == asked
            by_minimum = pool.load_replicas < pool.min_replicas
            assert (pool.binding is Binding.MINIMUM) == by_minimum


def test_a_target_that_depends_on_the_prompt_alone_has_looser_bases_only() -> None:
    workload = Workload.from_requests(*chat(), 60.0)
    request = request_for(H100, "0ms+5ms/token", gamma_max=1.0)
    found = plan(workload, request)
    if isinstance(found, Infeasible):
        pytest.fail(found.message)
    why = explain(workload, request, found)
    assert [one.value for one in of(Premise.SLO_BASE, why.sensitivities)] == [0.01]


def test_a_share_at_its_end_has_one_other_value() -> None:
    workload = Workload.from_requests(*chat(), 60.0)
    request = request_for(H100, "5s", compressible_share=1.0)
    why = explain(workload, request, chosen(workload, request))
    assert [one.value for one in of(Premise.COMPRESSIBLE_SHARE, why.sensitivities)] == [0.75]
